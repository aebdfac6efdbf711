// Creates the choices of a generate request, and the sequence that computes its prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/chunk_layout.h"
#include "cache/kv_cache_manager.h"
#include "engine/live_choices.h"
#include "engine/model_limits.h"
#include "engine/request.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

struct NewChoices {
  std::vector<std::unique_ptr<Choice>> live;
  // Answers that were complete already: their worker was lost after the last token, before it
  // reported the end.
  std::vector<FinishInfo> finished;
};

struct ChoiceOptions {
  ModelLimits limits;
  bool hash_logits = false;
};

// Validates the request and creates its choices. InvalidArgument names field, value and limit. On
// success at least one choice is live or finished. `tokenizer` must outlive the choices.
absl::StatusOr<NewChoices> MakeChoices(const ChoiceOptions& options, RequestHandle first,
                                       const GenerateRequest& generate,
                                       std::shared_ptr<RequestSink> sink,
                                       const Tokenizer& tokenizer, int64_t now_us);

// Returns the sequence that computes the prompt. With one choice it also covers the tokens that
// another worker generated. Several choices are forked at the end of the prompt. Moves the prompt
// out of `generate`. For a chunked prompt, `layout` is its layout, and the sequence has the tokens
// of the question. REQUIRES: a choice is live.
SequenceSpec DescribeSequence(const ChoiceOptions& options, const KvCacheManager& cache,
                              NewChoices& choices, GenerateRequest& generate,
                              const ChunkLayout* layout = nullptr);
// Returns the largest length of that sequence.
int32_t LongestSequence(const ChoiceOptions& options, const GenerateRequest& generate);

}  // namespace baton
