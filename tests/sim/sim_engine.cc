#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kWakeUs = 3;  // delay until a woken loop runs

int32_t MostBlocks(const SimEngineOptions& options) {
  return std::max(options.kv_blocks, options.max_blocks);
}

// Creates the layout. Each group has one block more, its scratch block.
KvPoolLayout MakeLayout(const SimEngineOptions& options) {
  std::vector<int64_t> blocks = {MostBlocks(options) + 1};
  if (options.model.window > 0) {
    blocks.push_back(BlocksFor(options, MostBlocks(options))[1] + 1);
  }
  return *KvPoolLayout::Create(options.model.Spec(), options.layout, options.block_size, blocks);
}

constexpr int32_t kMostRuns = 16;  // of one sequence: a scenario's prompts have fewer parts

StepLimits LimitsOf(const SimEngineOptions& options) {
  StepLimits limits{.max_tokens = options.token_budget + 8,
                    .max_sequences = options.max_running + 8,
                    .max_logit_rows = options.max_running + 8,
                    .max_context = options.context_length + options.block_size};
  if (options.chunk_slots == 0) return limits;
  limits.max_context = options.chunk_slots;
  limits.max_parts = kMaxPartsInStep;
  limits.max_extra_runs =
      limits.max_sequences * kMostRuns + 2 * kMaxPartsInStep + options.repair_runs;
  limits.max_shifted_queries = options.shifted_queries;
  limits.max_compared_rows = limits.max_tokens;
  return limits;
}

}  // namespace

BlockCounts BlocksFor(const SimEngineOptions& options, int32_t full) {
  BlockCounts blocks(full);
  if (options.model.window == 0) return blocks;
  if (!options.paged) {
    blocks[1] = full;  // a sequence has one contiguous run in every group
    return blocks;
  }
  const int64_t share = int64_t{options.window_blocks} * full / options.kv_blocks;
  blocks[1] = std::max(options.least_window_blocks, static_cast<int32_t>(share));
  return blocks;
}

KvFingerprint SimFingerprint(const SimEngineOptions& options) {
  KvFingerprint fingerprint;
  fingerprint.model = "simulated";
  fingerprint.backend = "simulated";
  fingerprint.numerics = "r1";
  fingerprint.kv_type = std::string(KvTypeName(options.kv_type));
  fingerprint.layout = std::string(KvLayoutKindName(options.layout));
  fingerprint.block_size = options.block_size;
  fingerprint.layers = kSimLayers;
  fingerprint.kv_heads = 1;
  fingerprint.head_dim = kSimHeadDim;
  fingerprint.rope = "none";
  DescribeGroups(options.model.Spec(), fingerprint);
  return fingerprint;
}

SimEngine::SimEngine(const SimEngineOptions& options, Environment environment, Epoch epoch,
                     const std::string& transfer_address)
    : options_(options),
      environment_(std::move(environment)),
      epoch_(epoch),
      node_(*environment_.node),
      layout_(MakeLayout(options)),
      pool_(layout_, options.unreadable_pool, options.max_blocks > 0,
            [this](int32_t blocks) { return BlocksFor(options_, blocks); }),
      runner_(layout_, pool_.bytes().data(), LimitsOf(options), environment_.mutant),
      hasty_(&runner_, pool_.bytes(),
             [this](std::function<void()> late) {
               node_.Post(options_.step_us / 2, std::move(late));
             }),
      random_(environment_.seed, "transfer ids"),
      watchdog_(&node_.clock(), options.op_stall_ms * 1000) {
  const bool reborn = environment_.mutant == Mutant::kRebornWorkerServed;
  const bool needs_work = environment_.mutant == Mutant::kCleanupNeedsWork;
  transport_ =
      std::make_unique<SimTransport>(node_, *environment_.streams, transfer_address,
                                     TransportOptions{.fingerprint = SimFingerprint(options),
                                                      .epoch = reborn ? Epoch(1) : epoch,
                                                      .pool = &pool_.lender(),
                                                      .waker =
                                                          [this, needs_work] {
                                                            if (!needs_work) Wake();
                                                          }},
                                     environment_.mutant);
  if (!options.asynchronous) runner_.set_meanwhile([this] { transport_->RunIfPosted(); });
  deferred_.set_waker([this] { Wake(); });
  runner_.set_begins_behind_match(
      [this](const StepChunk& chunk) { return BeginsBehindMatch(chunk); });
  runner_.set_before_op([this](int32_t op, int32_t ops) { PutCancelsOnBoard(op, ops); });
  mutant_transport_ = std::make_unique<MutantTransport>(
      *transport_, environment_.mutant,
      MutantTransport::Worker{.block_table =
                                  [this](uint64_t handle) {
                                    const SequenceId id(handle);  // none: a pulled prefix is sent
                                    return machines_->cache().Contains(id)
                                               ? machines_->cache().BlockTable(id)
                                               : std::span<const BlockId>();
                                  },
                              .groups = layout_.groups(),
                              .wake = [this] { Wake(); },
                              .run_later =
                                  [this](int64_t delay_us, std::function<void()> late) {
                                    node_.Post(delay_us, std::move(late));
                                  }});
  if (options.chunk_host_bytes > 0 && options.model.window == 0) {
    chunk_mover_ =
        std::make_unique<SimChunkMover>(&node_, layout_, pool_.bytes().data(),
                                        SimChunkMover::Options{.compress = options.chunk_compress,
                                                               .mutant = environment_.mutant,
                                                               .seed = environment_.seed},
                                        [this] { Wake(); });
  }
  machines_ = std::make_unique<EngineMachines>(
      MachinesOptions(), EngineEnvironment{.clock = &node_.clock(),
                                           .layout = layout_,
                                           .pool = &pool_,
                                           .runner = Device(),
                                           .transport = mutant_transport_.get(),
                                           .tokenizer = &SimTokenizer(),
                                           .cancellations = &cancels_,
                                           .watchdog = &watchdog_,
                                           .random_bits =
                                               [this, reborn, count = uint64_t{0}]() mutable {
                                                 return reborn ? ++count : random_.Bits();
                                               },
                                           .also_check = options_.also_check,
                                           .wake = [this] { Wake(); },
                                           .publish = [this] { PublishState(); },
                                           .chunk_mover = chunk_mover_.get()});
  PublishState();
}

EngineMachinesOptions SimEngine::MachinesOptions() const {
  std::vector<WindowPoolOptions> windows;
  if (options_.model.window > 0) {
    windows = {{.window = options_.model.window,
                .num_blocks = BlocksFor(options_, options_.kv_blocks)[1],
                .max_blocks = BlocksFor(options_, MostBlocks(options_))[1]}};
  }
  EngineMachinesOptions options =
      MachinesOptionsOf(options_, kSimVocabulary, options_.max_blocks, std::move(windows));
  options.cache.kv_events = options_.kept_event_bytes > 0;
  options.kept_event_bytes = static_cast<size_t>(options_.kept_event_bytes);
  options.idle_turn_us = options_.idle_turn_us;
  PromptPartsOptions& parts = options.prompt_parts;
  options.chunk_host_bytes = options_.chunk_host_bytes;
  parts.cache.max_entries = options_.chunk_entries;
  parts.cache.sleep_after_us = options_.chunk_sleep_after_us;
  parts.max_slots = options_.chunk_slots;
  parts.max_shifted_queries = options_.shifted_queries;
  parts.max_repair_runs = options_.repair_runs;
  return options;
}

void SimEngine::Cancel(RequestHandle handle) {
  cancels_under_way_.push_back({handle, node_.clock().NowUs()});
  machines_->inbox().Cancel(handle);
}

// Makes cancellations visible between two ops. The simulation runs the whole step at its end, so an
// op sees the cancellations that came before the op's own time.
void SimEngine::PutCancelsOnBoard(int32_t op, int32_t ops) {
  const int64_t now_us = step_begin_us_ + step_us_ * op / ops;
  std::erase_if(cancels_under_way_, [&](const CancelUnderWay& cancel) {
    if (cancel.at_us > now_us) return false;
    cancels_.Add(cancel.handle);
    return true;
  });
}

void SimEngine::Resize(int32_t blocks) {
  const absl::Status posted = machines_->inbox().Post([this, blocks](WorkerCore&) {
    const absl::StatusOr<PoolSize> resized = machines_->Resize(blocks);
    CHECK(resized.ok()) << resized.status();
  });
  CHECK(posted.ok()) << posted;
}

void SimEngine::Clear(bool prefixes, std::optional<CacheNamespace> only) {
  const absl::Status posted = machines_->inbox().Post([prefixes, only](WorkerCore& core) {
    prefixes ? core.ClearCache(only) : core.ClearChunks(only);
  });
  CHECK(posted.ok()) << posted;
}

void SimEngine::Wake() {
  if (stopping_) return;
  news_ = true;
  if (turn_posted_ || stepping_) return;
  turn_posted_ = true;
  node_.Post(kWakeUs, [this] { Turn(); });
}

ModelRunner* SimEngine::Device() {
  if (options_.asynchronous) return &deferred_;
  if (environment_.mutant == Mutant::kCommittedAtSubmit) return &hasty_;
  return &runner_;
}

// For mutants of the device, because the device knows only blocks.
bool SimEngine::BeginsBehindMatch(const StepChunk& chunk) const {
  const std::vector<RequestHandle> handles = core().Handles();
  return chunk.begin_slot > 0 && std::ranges::any_of(handles, [&](RequestHandle handle) {
           const SequenceId id(handle);
           return machines_->cache().Contains(id) &&
                  machines_->cache().matched(id) == chunk.begin_slot &&
                  machines_->cache().BlockTable(id).front() == chunk.block_table.front();
         });
}

int64_t SimEngine::StepUs() const {
  const int32_t tokens = std::min(options_.token_budget, 16 * (1 + scheduler().running_count()));
  return options_.step_us * (16 + tokens) / 16;
}

void SimEngine::Turn() {
  turn_posted_ = false;
  if (stepping_) return;
  news_ = false;
  cancels_under_way_.clear();  // they are in the inbox
  const bool open = machines_->loop().Turn();
  CheckAfterEvent();
  if (!open) return Stop();
  if (!machines_->loop().has_step()) return Rest();
  if (options_.asynchronous) return Step();
  stepping_ = true;
  step_begin_us_ = node_.clock().NowUs();
  step_us_ = StepUs();
  node_.Post(step_us_, [this] { Step(); });
}

void SimEngine::Step() {
  stepping_ = false;
  machines_->cache().HoldForStep(std::exchange(freed_at_stop_, {}));
  machines_->loop().Step();
  CheckAfterEvent();
  RunDevice();
  Rest();
}

// The timer uses the queue's time. A clock jump brings deadlines nearer but does not move an
// existing timer.
void SimEngine::Rest() {
  const int64_t rest_us = machines_->loop().Rest();
  if (news_ || rest_us == 0) return Wake();
  if (rest_us == INT64_MAX) return;
  const int64_t now_us = node_.queue().now_us();
  const int64_t at_us = now_us + rest_us;
  if (rest_timer_us_ > now_us && rest_timer_us_ <= at_us) return;
  rest_timer_us_ = at_us;
  node_.Post(rest_us, [this, at_us] {
    if (rest_timer_us_ != at_us) return;
    rest_timer_us_ = 0;
    Wake();
  });
}

void SimEngine::PublishState() {
  machines_->cache().HoldForStep(std::exchange(freed_at_stop_, {}));
  status_ = machines_->Status();
}

void SimEngine::CheckAfterEvent() {
  environment_.after_event();
  if (environment_.mutant != Mutant::kFreedAtStop) return;
  freed_at_stop_ = scheduler().step_holds().Held();
  machines_->cache().ReleaseStepHold(freed_at_stop_);
}

// Runs the asynchronous device's next step. It reads and writes late in the step's time, when
// blocks that were released too early have new owners. Then it reports its layers.
void SimEngine::RunDevice() {
  if (device_runs_ || !deferred_.unfinished()) return;
  device_runs_ = true;
  step_begin_us_ = node_.clock().NowUs();
  step_us_ = StepUs();
  const int64_t computed_us = step_us_ * 3 / 4;
  node_.Post(computed_us, [this] { deferred_.Run(); });
  for (int32_t layer = 1; layer < kSimLayers; ++layer) {
    node_.Post(computed_us + (step_us_ - computed_us) * layer / kSimLayers, [this] { Wake(); });
  }
  node_.Post(step_us_, [this] { EndDeviceStep(); });
}

void SimEngine::EndDeviceStep() {
  device_runs_ = false;
  deferred_.FinishOne();
  RunDevice();
}

void SimEngine::Shutdown(std::function<void()> done) {
  when_stopped_ = std::move(done);
  machines_->inbox().Close();
}

void SimEngine::Stop() {
  stopping_ = true;
  machines_->loop().Shutdown();
  if (environment_.mutant == Mutant::kExitWhilePeerReads) return when_stopped_();
  PollUntilIdle();
}

void SimEngine::PollUntilIdle() {
  machines_->cache().HoldForStep(std::exchange(freed_at_stop_, {}));
  const bool idle = machines_->loop().PollUntilIdle();
  environment_.after_event();
  if (idle) return when_stopped_();
  node_.Post(EngineLoop::kShutdownPollUs, [this] { PollUntilIdle(); });
}

void SimEngine::Abandon() {
  stopping_ = true;
  machines_->inbox().Close();
  machines_->core().Shutdown(absl::CancelledError("killed"));
  machines_->cache().HoldForStep(std::exchange(freed_at_stop_, {}));
  while (core().steps_in_flight() > 0) {
    deferred_.FinishOne();
    machines_->core().Step();
  }
  transport_->Abandon();
  if (chunk_mover_ != nullptr) chunk_mover_->Abandon();
  machines_->core().PollTransfers();
}

int32_t SimEngine::queued() const {
  return scheduler().waiting_count() + scheduler().running_count() +
         scheduler().waiting_for_kv_count();
}

}  // namespace baton
