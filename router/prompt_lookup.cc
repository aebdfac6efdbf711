#include "router/prompt_lookup.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace baton {

PromptLookup::PromptLookup(const FleetIndex& index, std::span<const Hash128> hashes,
                           const ChunkedRequest* chunked)
    : hashes_(hashes), chunked_(chunked) {
  for (const HeldPrefix& prefix : index.Match(hashes)) {
    units_.try_emplace(prefix.worker, prefix.units);  // the largest comes first
  }
  if (chunked != nullptr) AddParts(index);
}

void PromptLookup::AddParts(const FleetIndex& index) {
  const std::vector<ChunkedRequest::Part>& parts = chunked_->parts();
  std::vector<int64_t> sizes;
  for (const ChunkedRequest::Part& part : parts) sizes.push_back(part.tokens);
  chunks_.emplace(std::move(sizes), chunked_->chunks());
  absl::flat_hash_map<WorkerNumber, int64_t> held;  // tokens of one part
  for (size_t i = 0; i < parts.size(); ++i) {
    const ChunkedRequest::Part& part = parts[i];
    held.clear();
    for (const HeldPrefix& prefix : index.Match(part.prefix)) {
      int64_t& tokens = held[prefix.worker];
      tokens = std::max(tokens, std::min(part.tokens, int64_t{prefix.units} * kUnitsPerHash));
    }
    for (const HeldPrefix& whole : index.Match({&part.key, 1})) {
      held[whole.worker] = part.tokens;
      chunks_->Hold(whole.worker, static_cast<int32_t>(i), whole.tier == CacheTier::kDevice);
    }
    for (const auto& [worker, tokens] : held) part_tokens_[worker] += tokens;
  }
}

PromptLookup::Cached PromptLookup::Of(PredictedPrefixes& predicted, int64_t now_us) {
  Cached cached;
  predicted.Extend(hashes_, now_us, units_);
  int32_t most_units = 0;
  for (const auto& [worker, units] : units_) {
    cached.tokens[worker] = units * kUnitsPerHash;
    most_units = std::max(most_units, units);
  }
  if (most_units > 0 && chunked_ == nullptr) cached.held_prefix = hashes_[most_units - 1].low;
  for (const auto& [worker, tokens] : part_tokens_) {
    cached.tokens[worker] +=
        static_cast<int32_t>(std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max() / 2));
  }
  return cached;
}

}  // namespace baton
