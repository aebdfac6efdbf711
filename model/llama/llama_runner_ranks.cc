// The parts of LlamaRunner that exchange rows with the other ranks of a tensor-parallel group.
#include "model/llama/llama_runner.h"

namespace baton {

// Rank 0 has the embedding table, and knows tokens that the host does not know yet.
void LlamaRunner::BroadcastHidden(StepRows& rows) {
  if (communicator_ == nullptr) return;
  communicator_->Broadcast(*stream_,
                           {.x = buffers_->hidden, .tokens = rows.most(), .cols = config_.hidden});
}

void LlamaRunner::GatherColumns(const float* own, int64_t own_stride, float* all, int64_t cols,
                                StepRows& rows) {
  if (communicator_ == nullptr) return;
  communicator_->AllGather(*stream_, {.x = own,
                                      .x_stride = own_stride,
                                      .out = all,
                                      .out_stride = cols,
                                      .tokens = rows.most(),
                                      .cols = cols});
}

void LlamaRunner::AddToHidden(const Activations& x, const FusedWeight& weight, StepRows& rows) {
  float* const own = buffers_->hidden + rank_.Begin(config_.hidden);
  Multiply(x, weight, own, config_.hidden, rows, true);
  GatherColumns(own, config_.hidden, buffers_->hidden, config_.hidden, rows);
}

// Rank 0 computes its columns, the first ones, in their place.
void LlamaRunner::GatherLogits(StepRows& logit_rows) {
  if (communicator_ == nullptr) return;
  communicator_->Gather(*stream_, {.x = buffers_->logits,
                                   .x_stride = config_.vocabulary,
                                   .out = buffers_->logits,
                                   .out_stride = config_.vocabulary,
                                   .tokens = logit_rows.most(),
                                   .cols = vocabulary_});
}

}  // namespace baton
