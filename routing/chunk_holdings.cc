#include "routing/chunk_holdings.h"

#include <algorithm>
#include <utility>

namespace baton {

ChunkHoldings::ChunkHoldings(std::vector<int64_t> part_tokens,
                             std::vector<std::vector<int32_t>> chunks)
    : part_tokens_(std::move(part_tokens)),
      chunks_(std::move(chunks)),
      none_(part_tokens_.size(), false) {}

void ChunkHoldings::Hold(WorkerNumber worker, int32_t part, bool sends) {
  held_.try_emplace(worker, none_).first->second[static_cast<size_t>(part)] = true;
  if (sends) sent_.try_emplace(worker, none_).first->second[static_cast<size_t>(part)] = true;
}

const ChunkHoldings::Parts& ChunkHoldings::PartsOf(const Held& held, WorkerNumber worker) const {
  const auto found = held.find(worker);
  return found == held.end() ? none_ : found->second;
}

template <typename Take>
void ChunkHoldings::ForEach(const Parts& has, const Parts& lacks, const Take& take) const {
  Parts counted = lacks;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const std::vector<int32_t>& parts = chunks_[i];
    if (!std::all_of(parts.begin(), parts.end(), [&](int32_t part) { return has[part]; })) continue;
    int64_t tokens = 0;
    for (const int32_t part : parts) {
      if (!counted[part]) tokens += part_tokens_[part];
      counted[part] = true;
    }
    if (tokens > 0) take(static_cast<int32_t>(i), tokens);
  }
}

int64_t ChunkHoldings::TokensOf(WorkerNumber worker) const {
  int64_t all = 0;
  ForEach(PartsOf(sent_, worker), none_, [&](int32_t, int64_t tokens) { all += tokens; });
  return all;
}

int64_t ChunkHoldings::TokensToPull(WorkerNumber from, WorkerNumber to) const {
  int64_t all = 0;
  ForEach(PartsOf(sent_, from), PartsOf(held_, to),
          [&](int32_t, int64_t tokens) { all += tokens; });
  return all;
}

std::vector<int32_t> ChunkHoldings::ChunksToPull(WorkerNumber from, WorkerNumber to) const {
  std::vector<int32_t> chunks;
  ForEach(PartsOf(sent_, from), PartsOf(held_, to),
          [&](int32_t chunk, int64_t) { chunks.push_back(chunk); });
  return chunks;
}

}  // namespace baton
