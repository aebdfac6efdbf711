// A worker in simulated time: the production scheduler and cache, and step times of a profile
// instead of a model. Steps follow each other without overlap.
//
// The caller says when a step begins and ends, and when KV arrives. Answers have the tokens that
// AnswerToken names, so later turns of a chat find them in the cache.
//
// Not simulated: tensor-parallel ranks, sliding windows, prompt chunks (a prompt in parts counts as
// one prompt), forks, and what a transfer costs the worker that sends.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "loadtest/step_times.h"
#include "scheduler/scheduler.h"

namespace baton {

struct SimulatedWorkerOptions {
  int64_t pool_tokens = 524'288;
  int32_t block_size = 64;
  SchedulerOptions scheduler = {
      .token_budget = 2048, .max_chunk_tokens = 2048, .max_running = 256, .max_waiting = 1 << 20};
};

// Token `place` of the answer to request `request`, and its namespace in the cache.
TokenId AnswerToken(uint64_t request, int32_t place);
inline constexpr CacheNamespace kSimulatedNamespace{1};

// A prompt that a worker computes, from its admission on.
struct PromptProgress {
  int64_t queued_us = 0;
  int64_t started_us = -1;  // -1: still waiting
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // at its start
};

class SimulatedWorker {
 public:
  struct StepEvent {
    uint64_t request = 0;
    bool is_first_token = false;
    bool ended = false;      // the answer, or the prompt of Prefill
    bool exhausted = false;  // it ended early, because the pool is too small for it
  };

  // Both must outlive this.
  SimulatedWorker(const SimulatedWorkerOptions& options, const StepTimes* times,
                  const Clock* clock);

  // The errors of these are those of Scheduler::Add and Scheduler::AddWaitingForKv. Nothing has
  // happened after an error.
  //
  // Computes the prompt and answers with `output_tokens` tokens.
  absl::Status Generate(uint64_t request, std::vector<TokenId> prompt, int32_t output_tokens);
  // Computes the prompt for another worker. Its end is the first token.
  absl::Status Prefill(uint64_t request, std::vector<TokenId> prompt);
  // Reserves room for a prompt that another worker computes. Returns true if it has room now. If it
  // has none and `queues` is set, it waits in the queue until a step lets it leave (TakeRooms).
  absl::StatusOr<bool> AwaitKv(uint64_t request, std::vector<TokenId> prompt, int32_t output_tokens,
                               bool queues);
  // The KV of a prompt of AwaitKv has come, with its first token. Returns true if that was the
  // whole answer.
  bool KvArrived(uint64_t request);
  // It will not come. The worker computes the prompt itself.
  void KvLost(uint64_t request);

  // A pull of the first `tokens` tokens from `source`. Returns how many tokens will travel; 0:
  // nothing is missing, or there is no room for it. After a result above 0, call EndPull.
  int32_t BeginPull(uint64_t request, std::span<const TokenId> prompt, int32_t tokens,
                    const SimulatedWorker& source);
  void EndPull(uint64_t request);

  bool stepping() const { return stepping_; }
  // Begins a step. Returns its duration; 0 if there is no work.
  int64_t BeginStep();
  // Requests of AwaitKv that have left the queue since the last call.
  std::vector<uint64_t> TakeRooms() { return std::exchange(rooms_, {}); }
  // Ends it. The events are valid until the next call.
  std::span<const StepEvent> EndStep();
  // Of the step that began last: its time without the start that every step pays.
  double step_work_us() const { return step_work_us_; }
  double work_us() const { return work_us_; }  // sum of all steps

  // REQUIRES: the worker has this request's prompt, or its last EndStep ended it.
  const PromptProgress& ProgressOf(uint64_t request) const;
  // Encoded KV events since the last call.
  std::vector<std::string> TakeKvEvents() { return cache_.TakeKvEvents(); }
  int32_t CachedTokens(std::span<const TokenId> prompt) const;

  // Figures of a heartbeat.
  int32_t queued() const;
  int32_t waiting() const;  // those of them that have no blocks yet
  int64_t prompt_tokens_left() const { return scheduler_.PromptTokensLeft(); }
  int32_t available_blocks() const { return cache_.available_blocks(); }
  int64_t generated_tokens() const { return generated_tokens_; }  // by steps, since the start
  int64_t preemptions() const { return scheduler_.preemption_count(); }
  // What an oracle knows. Prompt tokens that are not computed yet count with their own place.
  int64_t RemainingPrefillUs() const;
  int64_t RemainingOutputTokens() const { return remaining_output_; }
  // Prompt tokens of all sequences on the worker.
  int64_t context_tokens() const { return context_tokens_; }

 private:
  struct Sequence {
    PromptProgress prompt;
    int32_t output_tokens = 0;  // 0: Prefill
    int32_t generated = 0;
    int32_t computed = 0;  // tokens of the prompt, the cached ones included
  };

  enum class Entry : uint8_t { kQueue, kAwaitKv, kQueueForKv };

  absl::Status Add(uint64_t request, std::vector<TokenId> prompt, int32_t output_tokens,
                   Entry entry);
  void NoteRoomForKv(uint64_t request);
  // Takes the next token of a sequence. Returns true if the sequence has ended.
  bool TakeToken(uint64_t request, Sequence& sequence);
  void End(uint64_t request);
  void NoteAdmitted(const SchedulerOutput& output);

  const StepTimes* const times_;
  const Clock* const clock_;
  const int32_t chunk_tokens_;
  KvCacheManager cache_;
  Scheduler scheduler_;
  absl::flat_hash_map<uint64_t, Sequence> sequences_;
  absl::flat_hash_map<uint64_t, PromptProgress> ended_;  // by the last EndStep
  absl::flat_hash_map<uint64_t, std::vector<CacheUnit>> pulls_;
  int64_t remaining_output_ = 0;
  int64_t context_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  SchedulerOutput step_;  // the running one
  std::vector<StepEvent> events_;
  std::vector<uint64_t> rooms_;
  std::vector<PrefillPiece> pieces_;
  bool stepping_ = false;
  double step_work_us_ = 0;
  double work_us_ = 0;
};

}  // namespace baton
