#include "router/prompt_lookup.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace baton {

PromptLookup::PromptLookup(const FleetIndex& index, std::span<const Hash128> hashes,
                           const ChunkedRequest* chunked, const LookupLimits* limits)
    : hashes_(hashes), limits_(limits), chunked_(chunked) {
  SomeHolders holders = Match(index, hashes);
  for (const HeldPrefix& prefix : holders.prefixes) {
    units_.try_emplace(prefix.worker, prefix.units);  // the largest comes first
  }
  if (limits != nullptr) {
    begins_ = std::move(holders.different_units);
    begins_.push_back(0);
  }
  if (chunked != nullptr) AddParts(index);
}

SomeHolders PromptLookup::Match(const FleetIndex& index, std::span<const Hash128> hashes) const {
  if (limits_ == nullptr) return {.prefixes = index.Match(hashes), .different_units = {}};
  return index.MatchSome(hashes, limits_->most, limits_->turn, limits_->also);
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
    for (const HeldPrefix& prefix : Match(index, part.prefix).prefixes) {
      int64_t& tokens = held[prefix.worker];
      tokens = std::max(tokens, std::min(part.tokens, int64_t{prefix.units} * kUnitsPerHash));
    }
    for (const HeldPrefix& whole : Match(index, {&part.key, 1}).prefixes) {
      held[whole.worker] = part.tokens;
      chunks_->Hold(whole.worker, static_cast<int32_t>(i), whole.tier == CacheTier::kDevice);
    }
    for (const auto& [worker, tokens] : held) part_tokens_[worker] += tokens;
  }
}

PromptLookup::Cached PromptLookup::Of(PredictedPrefixes& predicted, int64_t now_us) {
  Cached cached;
  if (limits_ == nullptr) {
    predicted.Extend(hashes_, now_us, units_);
  } else {
    predicted.ExtendSome(hashes_, now_us, begins_, limits_->most, units_);
  }
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
