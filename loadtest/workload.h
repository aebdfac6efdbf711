// Workloads: the requests of a load test, without their times.
//
//   synthetic      prompts that share nothing
//   shared-prefix  each prompt begins with one of a few long prefixes
//   chat           conversations: a turn contains all earlier turns with their answers
//   chunks         a system part, some chunks out of a pool, and a question
//   mooncake       a trace with hash ids: equal ids give equal tokens
//   azure          a trace with lengths only
//   swing          prompts that share nothing. For half a period, prompts are long and answers
//                  short; for the other half, the reverse
//
// The same options give the same requests. Only the answers inside later turns of a chat come from
// the target.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load_request.h"
#include "loadtest/traced_request.h"

namespace baton {

enum class WorkloadKind : uint8_t {
  kSynthetic,
  kSharedPrefix,
  kChat,
  kChunks,
  kMooncake,
  kAzure,
  kSwing,
};

// In the order of WorkloadKind.
const std::vector<std::string>& WorkloadNames();
// InvalidArgument names the value and the names allowed.
absl::StatusOr<WorkloadKind> ParseWorkloadKind(const std::string& name);
inline bool HasTrace(WorkloadKind kind) {
  return kind == WorkloadKind::kMooncake || kind == WorkloadKind::kAzure;
}

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kSynthetic;
  uint64_t seed = 0;
  int32_t vocabulary = 32'000;  // of the target's model
  int32_t context_length = 0;   // prompt and answer together; 0: no limit
  int32_t prompt_tokens = 256;  // of synthetic prompts; behind the prefix; of a turn; of a question
  int32_t output_tokens = 64;   // not for traces
  double length_spread = 0;     // 0 … 1: lengths are uniform from 1 - spread to 1 + spread times
  int32_t prefixes = 4;         // shared-prefix
  int32_t prefix_tokens = 1024;      // shared-prefix
  int32_t system_tokens = 64;        // chat and chunks: the system part
  int32_t turns = 4;                 // chat: turns of a conversation
  double think_s = 1;                // chat: mean of the exponential pause before a later turn
  int32_t chunk_pool = 32;           // chunks
  int32_t chunks = 4;                // chunks: of a prompt
  int32_t chunk_tokens = 256;        // chunks
  int32_t trace_block_tokens = 512;  // mooncake: tokens that stand for one block of 512
  // swing: first, prompts have prompt_tokens tokens and answers 1 / swing_ratio of them. After half
  // a period, answers have output_tokens tokens and prompts 1 / swing_ratio of them.
  double swing_ratio = 16;
  double swing_period_s = 240;

  int64_t swing_half_us() const { return static_cast<int64_t>(swing_period_s * 5e5); }
};

struct FollowUp {
  LoadRequest request;
  int64_t pause_us = 0;  // from the end of the answer to the intended send
};

class Workload {
 public:
  virtual ~Workload() = default;
  // Returns the next request that depends on no answer. nullopt: the trace has ended.
  virtual std::optional<LoadRequest> Next() = 0;
  // Time at which the request of the following calls of Next will be sent, from the start of the
  // run. Only workloads that change with time use it.
  void set_at_us(int64_t at_us) { at_us_ = at_us; }
  // Returns the request that follows the answer to `request`, if there is one. A conversation whose
  // answer is not whole ends.
  virtual std::optional<FollowUp> After(const LoadRequest& request, const AnswerContent& answer);

  // Chats that ended before their last turn, because the context would not hold it.
  int64_t clipped_conversations() const { return clipped_conversations_; }

 protected:
  // Shortens the request so that it fits into `context_length`: the prompt first, but not below one
  // token.
  static void Clip(int32_t context_length, LoadRequest& request);

  int64_t clipped_conversations_ = 0;
  int64_t at_us_ = 0;
};

// Mean lengths of the swing's halves: 0 has long prompts, 1 has long answers.
struct SwingLengths {
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
};
SwingLengths SwingLengthsOf(const WorkloadOptions& options, int32_t half);

// `trace` is only for the kinds with a trace, and empty for the others. InvalidArgument names an
// option that does not fit: a context that holds no request, a trace without requests.
absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(const WorkloadOptions& options,
                                                       std::vector<TracedRequest> trace);

}  // namespace baton
