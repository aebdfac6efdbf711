#include "loadtest/simulated_worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

// Ids of pulls must differ from those of requests.
constexpr uint64_t kPullIds = uint64_t{1} << 63;

KvCacheOptions CacheOptions(const SimulatedWorkerOptions& options) {
  KvCacheOptions cache;
  cache.block_size = options.block_size;
  cache.num_blocks =
      static_cast<int32_t>(std::max<int64_t>(1, options.pool_tokens / options.block_size));
  cache.kv_events = true;
  return cache;
}

}  // namespace

TokenId AnswerToken(uint64_t request, int32_t place) {
  constexpr uint64_t kVocabulary = 30'000;
  return static_cast<TokenId>(MixBits(request << 24 ^ static_cast<uint64_t>(place)) % kVocabulary);
}

SimulatedWorker::SimulatedWorker(const SimulatedWorkerOptions& options, const StepTimes* times,
                                 const Clock* clock)
    : times_(times),
      clock_(clock),
      chunk_tokens_(std::min(options.scheduler.token_budget, options.scheduler.max_chunk_tokens)),
      cache_(CacheOptions(options), clock),
      scheduler_(options.scheduler, &cache_) {}

absl::Status SimulatedWorker::Add(uint64_t request, std::vector<TokenId> prompt,
                                  int32_t output_tokens, Entry entry) {
  CHECK(!sequences_.contains(request)) << "request " << request;
  const auto prompt_tokens = static_cast<int32_t>(prompt.size());
  SequenceSpec spec{.id = SequenceId(request),
                    .tokens = std::move(prompt),
                    .cache_namespace = kSimulatedNamespace,
                    .max_tokens = prompt_tokens + std::max(1, output_tokens),
                    .awaits_kv = entry == Entry::kQueueForKv};
  RETURN_IF_ERROR(entry == Entry::kAwaitKv ? scheduler_.AddWaitingForKv(std::move(spec))
                                           : scheduler_.Add(std::move(spec)));
  Sequence& sequence = sequences_[request];
  sequence.prompt.queued_us = clock_->NowUs();
  sequence.prompt.prompt_tokens = prompt_tokens;
  sequence.output_tokens = output_tokens;
  remaining_output_ += output_tokens;
  context_tokens_ += prompt_tokens;
  return absl::OkStatus();
}

absl::Status SimulatedWorker::Generate(uint64_t request, std::vector<TokenId> prompt,
                                       int32_t output_tokens) {
  return Add(request, std::move(prompt), output_tokens, Entry::kQueue);
}

absl::Status SimulatedWorker::Prefill(uint64_t request, std::vector<TokenId> prompt) {
  return Add(request, std::move(prompt), /*output_tokens=*/0, Entry::kQueue);
}

absl::StatusOr<bool> SimulatedWorker::AwaitKv(uint64_t request, std::vector<TokenId> prompt,
                                              int32_t output_tokens, bool queues) {
  absl::Status status = Add(request, prompt, output_tokens, Entry::kAwaitKv);
  if (status.ok()) {
    NoteRoomForKv(request);
    return true;
  }
  if (!queues || !absl::IsResourceExhausted(status)) return status;
  RETURN_IF_ERROR(Add(request, std::move(prompt), output_tokens, Entry::kQueueForKv));
  sequences_.at(request).computed = sequences_.at(request).prompt.prompt_tokens;
  return false;
}

void SimulatedWorker::NoteRoomForKv(uint64_t request) {
  Sequence& sequence = sequences_.at(request);
  sequence.prompt.cached_tokens = cache_.matched(SequenceId(request));
  sequence.computed = sequence.prompt.prompt_tokens;
}

bool SimulatedWorker::KvArrived(uint64_t request) {
  Sequence& sequence = sequences_.at(request);
  scheduler_.KvArrived(SequenceId(request), sequence.prompt.prompt_tokens);
  ended_.clear();
  return TakeToken(request, sequence);
}

void SimulatedWorker::KvLost(uint64_t request) {
  Sequence& sequence = sequences_.at(request);
  sequence.computed = sequence.prompt.cached_tokens;
  sequence.prompt.started_us = clock_->NowUs();
  scheduler_.KvArrived(SequenceId(request), cache_.matched(SequenceId(request)));
}

bool SimulatedWorker::TakeToken(uint64_t request, Sequence& sequence) {
  const bool only_prefills = sequence.output_tokens == 0;
  if (!only_prefills) {
    scheduler_.AppendToken(SequenceId(request), AnswerToken(request, sequence.generated));
    ++sequence.generated;
    ++generated_tokens_;
    --remaining_output_;
  }
  if (!only_prefills && sequence.generated < sequence.output_tokens) return false;
  End(request);
  return true;
}

void SimulatedWorker::End(uint64_t request) {
  const auto it = sequences_.find(request);
  remaining_output_ -= std::max(0, it->second.output_tokens - it->second.generated);
  context_tokens_ -= it->second.prompt.prompt_tokens;
  ended_[request] = it->second.prompt;
  sequences_.erase(it);
  scheduler_.Finish(SequenceId(request), /*keep_cached=*/true);
}

int32_t SimulatedWorker::BeginPull(uint64_t request, std::span<const TokenId> prompt,
                                   int32_t tokens, const SimulatedWorker& source) {
  const int32_t there = std::min(tokens, source.CachedTokens(prompt));
  const auto whole = static_cast<size_t>(there / cache_.options().block_size) *
                     static_cast<size_t>(cache_.options().block_size);
  std::vector<CacheUnit> units = UnitsFromTokens(prompt.first(whole));
  const SequenceId id(kPullIds | request);
  const absl::StatusOr<int32_t> here =
      units.empty() ? absl::StatusOr<int32_t>(0)
                    : cache_.BeginImport(id, kSimulatedNamespace, units, /*spare_blocks=*/0);
  if (units.empty() || !here.ok()) return 0;
  const auto missing = static_cast<int32_t>(units.size()) - *here;
  if (missing == 0) {
    cache_.Release(id, /*keep=*/true);
    return 0;
  }
  units.erase(units.begin(), units.begin() + *here);
  pulls_.emplace(request, std::move(units));
  return missing;
}

void SimulatedWorker::EndPull(uint64_t request) {
  const auto it = pulls_.find(request);
  const SequenceId id(kPullIds | request);
  cache_.Commit(id, it->second);
  cache_.InsertCommitted(id);
  cache_.Release(id, /*keep=*/true);
  pulls_.erase(it);
}

void SimulatedWorker::NoteAdmitted(const SchedulerOutput& output) {
  for (const SequenceId id : output.admitted) {
    Sequence& sequence = sequences_.at(id.value());
    if (sequence.prompt.started_us >= 0) continue;  // it was preempted
    sequence.prompt.started_us = clock_->NowUs();
    sequence.prompt.cached_tokens = cache_.matched(id);
    sequence.computed = sequence.prompt.cached_tokens;
  }
}

int64_t SimulatedWorker::BeginStep() {
  CHECK(!stepping_);
  do {
    if (!scheduler_.has_work()) return 0;
    step_ = scheduler_.Schedule();
    NoteAdmitted(step_);
    for (const SequenceId id : step_.awaiting_kv) {
      NoteRoomForKv(id.value());
      rooms_.push_back(id.value());
    }
    // A plan that only admits or preempts sequences makes the next plan possible.
  } while (step_.chunks.empty() && step_.exhausted.empty());
  pieces_.clear();
  int32_t decoding = 0;
  int64_t context = 0;
  for (const ScheduledChunk& chunk : step_.chunks) {
    if (chunk.count == 1 && chunk.begin > 0) {
      ++decoding;
      context += chunk.begin;
    } else {
      pieces_.push_back({.begin = chunk.begin, .tokens = chunk.count});
    }
  }
  const int64_t us = std::max<int64_t>(1, times_->StepUs(decoding, context, pieces_));
  step_work_us_ = std::max(0.0, static_cast<double>(us) - times_->start_us());
  work_us_ += step_work_us_;
  scheduler_.StepSubmitted(step_);
  stepping_ = true;
  return us;
}

std::span<const SimulatedWorker::StepEvent> SimulatedWorker::EndStep() {
  CHECK(stepping_);
  stepping_ = false;
  events_.clear();
  ended_.clear();
  scheduler_.StepCollected(step_);
  scheduler_.CommitStep(step_);
  for (const ScheduledChunk& chunk : step_.chunks) {
    const uint64_t request = chunk.id.value();
    Sequence& sequence = sequences_.at(request);
    sequence.computed = std::max(sequence.computed, chunk.begin + chunk.count);
    if (!chunk.samples) continue;
    const bool is_first = sequence.generated == 0;
    const bool ended = TakeToken(request, sequence);
    events_.push_back({.request = request, .is_first_token = is_first, .ended = ended});
  }
  for (const SequenceId id : step_.exhausted) {
    if (!scheduler_.Contains(id)) continue;
    events_.push_back({.request = id.value(), .ended = true, .exhausted = true});
    End(id.value());
  }
  return events_;
}

const PromptProgress& SimulatedWorker::ProgressOf(uint64_t request) const {
  const auto it = sequences_.find(request);
  return it != sequences_.end() ? it->second.prompt : ended_.at(request);
}

int32_t SimulatedWorker::CachedTokens(std::span<const TokenId> prompt) const {
  return cache_.PeekMatch(kSimulatedNamespace, UnitsFromTokens(prompt));
}

int32_t SimulatedWorker::queued() const {
  return scheduler_.waiting_count() + scheduler_.running_count() +
         scheduler_.waiting_for_kv_count();
}

int32_t SimulatedWorker::waiting() const { return scheduler_.waiting_count(); }

int64_t SimulatedWorker::RemainingPrefillUs() const {
  int64_t us = 0;  // whole numbers, so that the order of the map does not matter
  for (const auto& [request, sequence] : sequences_) {
    const int32_t total = sequence.prompt.prompt_tokens;
    if (sequence.computed < total)
      us += std::llround(times_->PrefillUs(sequence.computed, total, chunk_tokens_));
  }
  return us;
}

}  // namespace baton
