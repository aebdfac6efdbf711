// The graphs of LlamaRunner: which one a decode step replays, and their capture.
#include <algorithm>
#include <vector>

#include "model/llama/llama_runner.h"

namespace baton {

int32_t LlamaRunner::Bucket(int32_t rows) const {
  const auto& buckets = options_.graph_buckets;
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), rows);
  return bucket == buckets.end() ? 0 : *bucket;
}

PagedAttentionArgs LlamaRunner::AttentionShapeOf(int32_t group) const {
  return {.query_heads = config_.query_heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .kv = {.type = layout_.group(group).group().type}};
}

bool LlamaRunner::CanShare(int32_t rows) const {
  return options_.paged && rows >= kLeastSharingRows &&
         ops_.SharesSegments(AttentionShapeOf(0), rows);
}

bool LlamaRunner::SharesAnything() const {
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    const auto segments = buffers_->shared_segments(group);
    if (std::any_of(segments.begin(), segments.end(), [](int32_t n) { return n > 0; })) return true;
  }
  return false;
}

// All ranks of a group decide alike, because they have the same input and the same shape. If they
// did not, the results would be the same: both graphs have the same collectives.
bool LlamaRunner::SharingPays(int32_t rows) const {
  if (!CanShare(Bucket(rows)) || !SharesAnything()) return false;
  int64_t saved = 0;
  std::vector<int32_t> slots(static_cast<size_t>(rows));
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    // A decode row of a graph has one run.
    const auto row_runs = buffers_->row_runs(group);
    std::transform(row_runs.begin(), row_runs.begin() + rows, slots.begin(),
                   [](const RowRuns& row) { return row.last_end - row.last_begin; });
    saved += ops_.SavedBySharing(AttentionShapeOf(group), slots,
                                 buffers_->shared_segments(group).first(slots.size())) *
             layout_.group(group).group().layers;
  }
  return saved > 0;
}

const OpGraph& LlamaRunner::GraphFor(GraphKey key) {
  std::unique_ptr<OpGraph>& graph = graphs_[key];
  if (graph == nullptr) graph = CaptureFor(key);
  return *graph;
}

std::unique_ptr<OpGraph> LlamaRunner::CaptureFor(GraphKey key) {
  StepRows rows = StepRows::Fixed(key.bucket);
  StepRows none;
  stream_->BeginCapture();
  draws_->EnqueueFeed(key.bucket, buffers_->token_ids, *stream_);
  Enqueue({.tokens = rows, .logits = rows, .shifted_queries = none, .shares = key.shares});
  if (rank_.rank == 0) {
    draws_->EnqueueGraphDraws(key.bucket, buffers_->logits, config_.vocabulary, *stream_);
  }
  return stream_->EndCapture();
}

std::vector<LlamaRunner::GraphKey> LlamaRunner::AllGraphs() const {
  std::vector<GraphKey> keys;
  if (!options_.graph) return keys;
  for (const int32_t bucket : options_.graph_buckets) {
    keys.push_back({bucket, false});
    if (CanShare(bucket)) keys.push_back({bucket, true});
  }
  return keys;
}

}  // namespace baton
