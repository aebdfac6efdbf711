// Simulation of a fleet under a routing policy, in simulated time. It uses the production routing
// policy, worker registry, throughput model and global index; only the workers are simulated. The
// router knows what it knows in production: the caches' events, its own requests, and the ledgers
// of finished requests.
//
// A prefix pull finishes before its prompt is queued. It transfers the blocks that the source has
// and the receiver lacks; the time is that of the bytes plus one call. Simplification: a source
// serves any number of pulls at full bandwidth, and its own work is not slowed down.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulated_worker.h"
#include "bench/timed_trace.h"
#include "cache/index/global_index.h"
#include "common/check.h"
#include "common/clock.h"
#include "routing/routing_policy.h"

namespace baton {

struct FleetOptions {
  int32_t workers = 16;
  int32_t prefill_workers = 0;  // so many of `workers` only prefill; 0: all have both roles
  size_t capacity = 16'384;     // blocks of each worker's cache
  ServiceModel model;
};

struct FleetFigures {
  double cached_tokens = 0;
  double computed_tokens = 0;
  double local_prefills = 0;
  double pulls = 0;
  double pulled_tokens = 0;
  double max_over_mean_load = 0;         // of the work in the whole run
  double window_max_over_mean_load = 0;  // mean over windows of one minute
  double decisions_per_s = 0;
  std::vector<double> first_token_ms;  // by request, in trace order
  std::vector<int32_t> prefilled_by;   // by request
  std::vector<double> inter_token_ms;
};

// Tokens of all sequences on each worker, by worker number. Some peer policies use them.
using ContextTokens = std::vector<int64_t>;

class FleetSimulation {
 public:
  FleetSimulation(const FleetOptions& options, const SimulatedTrace* trace)
      : options_(options),
        trace_(trace),
        registry_({.model = "", .expiry_us = kForever, .max_workers = options.workers}, &clock_),
        index_({.max_blocks = IndexBlocks(), .expected_blocks = IndexBlocks(), .key_seeds = {}}),
        context_(static_cast<size_t>(options.workers) + 1),
        requests_(trace->requests().size()) {
    figures_.first_token_ms.resize(requests_.size());
    figures_.prefilled_by.resize(requests_.size());
    for (int32_t i = 0; i < options.workers; ++i) {
      workers_.emplace_back(&options_.model, options.capacity);
      Register(i);
    }
  }

  const ContextTokens* context_tokens() const { return &context_; }

  FleetFigures Run(RoutingPolicy& policy) {
    const auto& requests = trace_->requests();
    uint32_t next = 0;
    while (next < requests.size() || !events_.empty()) {
      const bool arrives =
          next < requests.size() && (events_.empty() || requests[next].at_us < events_.top().at_us);
      if (arrives) {
        AdvanceTo(requests[next].at_us);
        Arrive(next++, policy);
      } else {
        const Event event = events_.top();
        events_.pop();
        AdvanceTo(event.at_us);
        switch (event.kind) {
          case EventKind::kStepEnds:
            StepEnded(event.worker);
            break;
          case EventKind::kKvArrives:
            KvArrived(event.request);
            break;
          case EventKind::kPrefixArrives:
            PrefixArrived(event.request);
            break;
        }
      }
    }
    FillLoads();
    figures_.decisions_per_s = static_cast<double>(requests.size()) / deciding_s_;
    return std::move(figures_);
  }

  // Counts the workers that have all of these blocks cached.
  int32_t Holders(std::span<const uint32_t> blocks) {
    return static_cast<int32_t>(
        std::count_if(workers_.begin(), workers_.end(), [blocks](SimulatedWorker& worker) {
          return worker.cache().Leading(blocks) == blocks.size();
        }));
  }

 private:
  static constexpr int64_t kForever = int64_t{1} << 60;
  static constexpr int64_t kWindowUs = 60'000'000;
  static constexpr int32_t kPoolBlocks = 1 << 24;

  enum class EventKind : uint8_t { kStepEnds, kKvArrives, kPrefixArrives };
  struct Event {
    int64_t at_us;
    uint64_t order;
    int32_t worker;
    EventKind kind;
    uint32_t request = 0;  // for kKvArrives and kPrefixArrives
    bool operator<(const Event& other) const {
      return std::pair(at_us, order) > std::pair(other.at_us, other.order);
    }
  };
  struct Running {
    RoutePlan plan;
    int32_t batch = 0;
    SimulatedWorker::Prompt prompt;
    size_t pulled_blocks = 0;  // cached prefix blocks after the pull
    int64_t pull_bytes = 0;
    int64_t pull_us = 0;
    int64_t kv_bytes = 0;
    int64_t prefilled_us = 0;
    int64_t first_token_us = 0;
  };

  size_t IndexBlocks() const { return trace_->distinct_blocks() + 4096; }
  static int32_t WorkerOf(WorkerNumber number) { return static_cast<int32_t>(number.value()) - 1; }

  void Register(int32_t worker) {
    WorkerReport report;
    report.id = "worker-" + std::to_string(worker);
    report.address = report.id;
    report.epoch = Epoch(1);
    report.model = report.fingerprint = "model";
    report.block_size = kTraceBlockTokens;
    report.available_blocks = kPoolBlocks;
    report.kv_bytes_per_token = options_.model.kv_bytes_per_token;
    report.role = WorkerRole::kBoth;
    if (options_.prefill_workers > 0) {
      report.role = worker < options_.prefill_workers ? WorkerRole::kPrefill : WorkerRole::kDecode;
    }
    CHECK(registry_.Heartbeat(report).ok());
  }

  void AdvanceTo(int64_t now_us) { clock_.AdvanceUs(now_us - Now()); }
  // Time in the trace, which starts at 0. The clock does not start at 0.
  int64_t Now() const { return clock_.NowUs() - start_us_; }

  int32_t CachedTokens(int32_t worker, uint32_t number) {
    const auto& request = trace_->requests()[number];
    const size_t blocks = workers_[worker].cache().Leading(trace_->Blocks(request));
    return static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(blocks) * kTraceBlockTokens,
                                                  request.prompt_tokens - 1));
  }

  void Arrive(uint32_t number, RoutingPolicy& policy) {
    const auto& request = trace_->requests()[number];
    const auto hashes = trace_->Hashes(request);
    const auto begin = std::chrono::steady_clock::now();
    RoutingInput input;
    input.prompt_tokens = request.prompt_tokens;
    input.affinity_key = hashes[std::min<size_t>(hashes.size(), 2) - 1].low;
    int32_t most_held = 0;
    for (const HeldPrefix& held : index_.MatchWorkers(hashes, match_)) {
      input.cached_tokens[held.worker] = held.units * kTraceBlockTokens;
      most_held = std::max(most_held, held.units);
    }
    if (most_held > 0) input.held_prefix = hashes[most_held - 1].low;
    const FleetView fleet{registry_.workers(), &speeds_, clock_.NowUs()};
    const absl::StatusOr<RoutePlan> plan = policy.Choose(input, fleet);
    deciding_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK(plan.ok()) << plan.status();

    Running& running = requests_[number];
    running.plan = *plan;
    registry_.AddActive(plan->decode);
    running.batch = registry_.Find(plan->decode)->Load();
    if (plan->prefill) registry_.AddActive(*plan->prefill);
    registry_.AddPrefill(plan->prefiller(), plan->work);
    context_[plan->decode.value()] += request.prompt_tokens;
    figures_.prefilled_by[number] = WorkerOf(plan->prefiller());
    if (plan->pull) {
      Pull(number);
    } else {
      Queue(number);
    }
  }

  void Queue(uint32_t number) {
    const int32_t worker = WorkerOf(requests_[number].plan.prefiller());
    workers_[worker].Prefill(number, trace_->requests()[number].prompt_tokens, Now());
    Wake(worker);
  }

  int64_t ShippingUs(int64_t bytes) const {
    return static_cast<int64_t>(static_cast<double>(bytes) / options_.model.bytes_per_us);
  }

  void Pull(uint32_t number) {
    Running& running = requests_[number];
    const auto blocks = trace_->Blocks(trace_->requests()[number]);
    const int32_t receiver = WorkerOf(running.plan.prefiller());
    LruCache& source = workers_[WorkerOf(running.plan.pull->from)].cache();
    const auto asked =
        static_cast<size_t>(running.plan.pull->tokens + kTraceBlockTokens - 1) / kTraceBlockTokens;
    running.pulled_blocks = std::min(asked, source.Leading(blocks));
    source.Use(blocks.first(running.pulled_blocks));
    const size_t here = workers_[receiver].cache().Leading(blocks);
    const size_t missing = running.pulled_blocks - std::min(running.pulled_blocks, here);
    const int64_t tokens = static_cast<int64_t>(missing) * kTraceBlockTokens;
    running.pull_bytes = tokens * options_.model.kv_bytes_per_token;
    running.pull_us = ShippingUs(running.pull_bytes) + options_.model.call_us;
    ++figures_.pulls;
    figures_.pulled_tokens += static_cast<double>(tokens);
    Schedule(running.pull_us, receiver, EventKind::kPrefixArrives, number);
  }

  void PrefixArrived(uint32_t number) {
    const Running& running = requests_[number];
    const auto& request = trace_->requests()[number];
    Keep(WorkerOf(running.plan.prefiller()), trace_->Blocks(request).first(running.pulled_blocks),
         trace_->Hashes(request));
    speeds_.Learn(FinishedPull{.receiver = running.plan.prefiller(),
                               .us = running.pull_us,
                               .kv_bytes = running.pull_bytes,
                               .kv_transfer_us = ShippingUs(running.pull_bytes)});
    Queue(number);
  }

  void Schedule(int64_t in_us, int32_t worker, EventKind kind, uint32_t request = 0) {
    events_.push({Now() + in_us, order_++, worker, kind, request});
  }

  void Wake(int32_t worker) {
    SimulatedWorker& it = workers_[worker];
    if (it.stepping()) return;
    const int64_t end_us = it.BeginStep(
        Now(), [this, worker](uint32_t number) { return CachedTokens(worker, number); });
    if (end_us > 0) Schedule(end_us - Now(), worker, EventKind::kStepEnds);
  }

  void StepEnded(int32_t worker) {
    const auto window = static_cast<size_t>(Now() / kWindowUs);
    if (window >= windows_.size()) {
      windows_.resize(window + 1, std::vector<double>(workers_.size()));
    }
    windows_[window][worker] += workers_[worker].step_work_us();
    const SimulatedWorker::StepResult result = workers_[worker].EndStep();
    for (const auto& answer : result.answered) Finish(answer.request);
    for (const auto& prompt : result.prefilled) Prefilled(worker, prompt);
    Wake(worker);
  }

  void Prefilled(int32_t worker, const SimulatedWorker::Prompt& prompt) {
    Running& running = requests_[prompt.request];
    running.prompt = prompt;
    running.prefilled_us = Now();
    figures_.cached_tokens += prompt.cached;
    figures_.computed_tokens += prompt.tokens - prompt.cached;
    registry_.RemovePrefill(running.plan.prefiller(), running.plan.work);
    Keep(worker, prompt.request);
    if (!running.plan.prefill) {
      ++figures_.local_prefills;
      return FirstToken(prompt.request);
    }
    registry_.RemoveActive(*running.plan.prefill);
    const int32_t decode = WorkerOf(running.plan.decode);
    const int32_t lacking = prompt.tokens - CachedTokens(decode, prompt.request);
    running.kv_bytes = lacking * options_.model.kv_bytes_per_token;
    const int64_t shipped_us = prompt.started_us + ShippingUs(running.kv_bytes);
    const int64_t arrival_us = std::max(Now(), shipped_us) + options_.model.call_us;
    Schedule(arrival_us - Now(), decode, EventKind::kKvArrives, prompt.request);
  }

  void KvArrived(uint32_t number) {
    const int32_t decode = WorkerOf(requests_[number].plan.decode);
    Keep(decode, number);
    FirstToken(number);
    Wake(decode);
  }

  void Keep(int32_t worker, uint32_t number) {
    const auto& request = trace_->requests()[number];
    Keep(worker, trace_->Blocks(request), trace_->Hashes(request));
  }
  // Adds the blocks to the worker's cache and tells the index about stored and removed blocks.
  void Keep(int32_t worker, std::span<const uint32_t> blocks, std::span<const Hash128> hashes) {
    LruCache& cache = workers_[worker].cache();
    const IndexedWorker name(static_cast<uint32_t>(worker + 1));
    std::vector<std::pair<size_t, size_t>> stored;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (cache.Has(blocks[i])) continue;
      if (stored.empty() || stored.back().second != i) stored.emplace_back(i, i);
      stored.back().second = i + 1;
    }
    std::vector<Hash128> gone;
    for (const uint32_t block : cache.Use(blocks)) gone.push_back(trace_->HashOf(block));
    index_.Removed(name, CacheTier::kDevice, gone);
    for (const auto& [begin, end] : stored) {
      const auto parent = begin == 0 ? std::optional<Hash128>() : hashes[begin - 1];
      index_.Stored(name, CacheTier::kDevice, parent, hashes.subspan(begin, end - begin));
    }
  }

  void FirstToken(uint32_t number) {
    const auto& request = trace_->requests()[number];
    Running& running = requests_[number];
    running.first_token_us = Now();
    figures_.first_token_ms[number] = static_cast<double>(Now() - request.at_us) / 1e3;
    if (request.output_tokens <= 1) return Finish(number);
    workers_[WorkerOf(running.plan.decode)].Decode(number, request.prompt_tokens,
                                                   request.output_tokens - 1);
  }

  void Finish(uint32_t number) {
    const auto& request = trace_->requests()[number];
    const Running& running = requests_[number];
    registry_.RemoveActive(running.plan.decode);
    context_[running.plan.decode.value()] -= request.prompt_tokens;
    const SimulatedWorker::Prompt& prompt = running.prompt;
    const int64_t decoding_us = Now() - running.first_token_us;
    const int64_t gaps = request.output_tokens - 1;
    if (gaps > 0) {
      figures_.inter_token_ms.push_back(static_cast<double>(decoding_us) / 1e3 /
                                        static_cast<double>(gaps));
    }
    FinishedRequest finished{.decode = running.plan.decode, .prefill = running.plan.prefill};
    finished.cached_tokens = prompt.cached;
    finished.computed_tokens = prompt.tokens - prompt.cached;
    finished.queue_us = prompt.started_us - prompt.queued_us;
    finished.prefill_us = running.prefilled_us - prompt.started_us;
    finished.kv_bytes = running.kv_bytes;
    finished.kv_transfer_us = ShippingUs(running.kv_bytes);
    finished.first_token_us = running.first_token_us - request.at_us - running.pull_us;
    finished.completion_tokens = request.output_tokens;
    finished.inter_token_us = gaps > 0 ? decoding_us / gaps : 0;
    finished.decode_batch = running.batch;
    speeds_.Learn(finished);
  }

  // Ratio of the largest load to the mean of loads [first, last).
  static double MaxOverMean(const std::vector<double>& loads, size_t first, size_t last) {
    double most = 0;
    double sum = 0;
    for (size_t i = first; i < last; ++i) {
      most = std::max(most, loads[i]);
      sum += loads[i];
    }
    return sum == 0 ? 0 : most * static_cast<double>(last - first) / sum;
  }
  double MaxOverMean(const std::vector<double>& loads) const {
    const auto border = static_cast<size_t>(options_.prefill_workers);
    const double decode = MaxOverMean(loads, border, loads.size());
    return border == 0 ? decode : std::max(decode, MaxOverMean(loads, 0, border));
  }
  void FillLoads() {
    std::vector<double> loads;
    for (const SimulatedWorker& worker : workers_) {
      loads.push_back(worker.work_us());
    }
    figures_.max_over_mean_load = MaxOverMean(loads);
    // Windows after the last arrival only drain, so they do not count.
    const auto last_us = trace_->requests().back().at_us;
    const size_t count =
        std::max<size_t>(1, std::min(windows_.size(), static_cast<size_t>(last_us / kWindowUs)));
    for (size_t i = 0; i < count; ++i) {
      figures_.window_max_over_mean_load += MaxOverMean(windows_[i]) / static_cast<double>(count);
    }
  }

  const FleetOptions options_;
  const SimulatedTrace* const trace_;
  ManualClock clock_;
  const int64_t start_us_ = clock_.NowUs();
  WorkerRegistry registry_;
  GlobalIndex index_;
  PrefixMatch match_;
  ThroughputModel speeds_;
  ContextTokens context_;
  std::vector<SimulatedWorker> workers_;
  std::vector<Running> requests_;
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  double deciding_s_ = 0;
  std::vector<std::vector<double>> windows_;  // work by window and worker
  FleetFigures figures_;
};

}  // namespace baton
