// The parts of LlamaRunner for rows of chunked prompts: shifted queries, and rows that compare.
#include "common/status_macros.h"
#include "model/llama/llama_runner.h"

namespace baton {
namespace {

constexpr int32_t kComparedLayer = 1;

}  // namespace

// Copies queries before their rotation, and rotates the copies for the positions of their runs'
// keys.
void LlamaRunner::EnqueueShiftedQueries(const Rows& rows) {
  const int64_t count = rows.shifted_queries.most();
  if (count == 0) return;
  stream_->LimitRows(&rows.shifted_queries);
  StepBuffers& b = *buffers_;
  const int64_t half = static_cast<int64_t>(config_.rope_frequencies.size());
  float* const queries = b.qkv + b.first_shifted_query * QkvStride();
  ops_.GatherRows(*stream_, {.x = b.qkv,
                             .indices = b.shifted_rows,
                             .out = queries,
                             .rows = count,
                             .cols = int64_t{config_.query_heads} * config_.head_dim,
                             .stride = QkvStride()});
  ops_.Rope(*stream_, {.x = queries,
                       .stride = QkvStride(),
                       .heads = config_.query_heads,
                       .head_dim = config_.head_dim,
                       .cosines = b.cosines + b.first_shifted_query * half,
                       .sines = b.sines + b.first_shifted_query * half,
                       .half = half,
                       .neighbours = true,
                       .tokens = count});
  stream_->LimitRows(&rows.tokens);
}

bool LlamaRunner::CanCompare() const { return config_.layers > kComparedLayer; }

void LlamaRunner::EnqueueCompareKv(StepRows& tokens) {
  StepBuffers& b = *buffers_;
  const int64_t head_dim = config_.head_dim;
  const float* const k = b.qkv + config_.query_heads * head_dim;
  ops_.CompareKv(*stream_, {.k = k,
                            .v = k + config_.kv_heads * head_dim,
                            .stride = QkvStride(),
                            .kv_heads = config_.kv_heads,
                            .head_dim = head_dim,
                            .slots = b.compared_slots,
                            .kv = KvOf(kComparedLayer).view,
                            .changes = b.changes,
                            .tokens = tokens.most()});
  const int64_t own = 2 * int64_t{config_.kv_heads};
  GatherColumns(b.changes, own, b.all_changes, own * rank_.degree, tokens);
}

void LlamaRunner::EnqueueComparison(const Rows& rows) {
  for (int32_t i = 0; i < kComparedLayer; ++i) EnqueueLayer(i, rows);
  EnqueueKv(kComparedLayer, rows);
  EnqueueCompareKv(rows.tokens);
  const Rows stored{.tokens = rows.step->stored_tokens(),
                    .logits = rows.logits,
                    .shifted_queries = rows.step->stored_shifted_queries(),
                    .embeddings = rows.embeddings,
                    .tables = rows.tables,
                    .step = rows.step};
  if (stored.tokens.most() == 0) return;
  stream_->LimitRows(&stored.tokens);
  EnqueueBehindKv(kComparedLayer, stored);
  for (int32_t i = kComparedLayer + 1; i < config_.layers; ++i) EnqueueLayer(i, stored);
}

absl::Status LlamaRunner::KeepChanges(int slot) {
  SubmittedStep& step = *steps_[slot];
  StagedArray<float>& changes = changes_[slot];
  const int64_t width = ChangesOfARow();
  RETURN_IF_ERROR(
      changes.Resize(step.compared_rows() * width, device_, "changes of compared rows"));
  stream_->Copy(changes.data(), buffers_->all_changes + step.stored_tokens().most() * width,
                changes.bytes());
  return absl::OkStatus();
}

std::vector<float> LlamaRunner::ChangesIn(int slot) const {
  std::vector<float> sums(steps_[slot]->compared_rows());
  const float* next = changes_[slot].data();
  for (float& sum : sums) {
    for (int64_t i = 0; i < ChangesOfARow(); ++i) sum += *next++;
  }
  return sums;
}

int64_t LlamaRunner::ChangesOfARow() const { return 2 * int64_t{config_.kv_heads} * rank_.degree; }

}  // namespace baton
