// LlamaRunner::WarmUp: takes the memory of all steps when the runner is created.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/llama/llama_runner.h"

namespace baton {

// Which kernel an op takes, and how much scratch memory, depends on the number of rows. The
// kernels' limits are powers of two and their neighbours, and numbers just above multiples of 64.
void LlamaRunner::EnqueueAllShapes() {
  const StepLimits& limits = options_.limits;
  const auto enqueue = [&](int32_t tokens) {
    StepRows token_rows = StepRows::Fixed(tokens);
    StepRows logit_rows = StepRows::Fixed(std::min(tokens, limits.max_logit_rows));
    StepRows shifted = StepRows::Fixed(limits.max_shifted_queries);
    Enqueue({.tokens = token_rows,
             .logits = logit_rows,
             .shifted_queries = shifted,
             .embeddings = limits.max_embeddings > 0});
  };
  enqueue(limits.max_tokens);  // first, because it needs the most scratch memory
  for (int32_t tokens = 1; tokens < limits.max_tokens; tokens *= 2) {
    enqueue(tokens);
    enqueue(tokens + 1);
  }
  for (int32_t tokens = 65; tokens < limits.max_tokens; tokens += 64) enqueue(tokens);
  if (compares_rows()) {
    StepRows rows = StepRows::Fixed(limits.max_tokens);
    EnqueueCompareKv(rows);
  }
  const ByteRun none[] = {{}};
  ops_.CopyRuns(*stream_, {.from = pool_, .to = pool_, .runs = none});  // as CopyBlocks
  ops_.CopyRuns(*stream_,
                {.from = pool_, .to = pool_, .runs = none, .staging = true, .urgent = true});
  draws_->EnqueueAllShapes(buffers_->logits, config_.vocabulary, buffers_->token_ids, *stream_);
  for (const GraphKey& key : AllGraphs()) CaptureFor(key);
}

absl::Status LlamaRunner::WarmUp() {
  const auto with_shape = [&](const absl::Status& why) {
    return absl::Status(
        why.code(), absl::StrCat("a step of ", options_.limits.max_tokens, " tokens with heads of ",
                                 config_.head_dim, " and KV of type ",
                                 std::string(KvTypeName(layout_.group(0).group().type)),
                                 " cannot run on this device: ", why.message()));
  };
  for (StagedArray<float>& changes : changes_) {
    RETURN_IF_ERROR(changes.Resize(options_.limits.max_compared_rows * ChangesOfARow(), device_,
                                   "changes of compared rows"));
  }
  const absl::Status prepared = stream_->Prepare([this] { EnqueueAllShapes(); });
  if (!prepared.ok()) return with_shape(prepared);
  for (const GraphKey& key : AllGraphs()) GraphFor(key);
  stream_->Synchronize();
  const absl::Status health = device_.Health();
  return health.ok() ? health : with_shape(health);
}

}  // namespace baton
