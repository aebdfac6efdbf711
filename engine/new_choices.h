// A generate request becomes choices, and the sequence that computes its prompt.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "engine/live_choices.h"
#include "engine/model_limits.h"
#include "engine/request.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

struct NewChoices {
  std::vector<std::unique_ptr<Choice>> live;
  // Answers that had ended already: their worker was lost between last token and end.
  std::vector<FinishInfo> finished;
};

struct ChoiceOptions {
  ModelLimits limits;
  bool hash_logits = false;
};

// Validates the request. InvalidArgument names field, value and limit. At least one choice is live
// or finished. The tokenizer outlives the choices.
absl::StatusOr<NewChoices> MakeChoices(const ChoiceOptions& options, RequestHandle first,
                                       const GenerateRequest& generate,
                                       std::shared_ptr<RequestSink> sink,
                                       const Tokenizer& tokenizer, int64_t now_us);

// The sequence that computes the prompt. A single answer goes on behind what was generated of it;
// several ones part at the prompt's end. Takes the prompt out of `generate`. REQUIRES: a choice is
// live.
SequenceSpec DescribeSequence(const ChoiceOptions& options, const KvCacheManager& cache,
                              NewChoices& choices, GenerateRequest& generate);

}  // namespace baton
