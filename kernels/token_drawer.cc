#include "kernels/token_drawer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/exact_math.h"
#include "kernels/softmax_weight.h"

namespace baton {
namespace {

constexpr size_t kLanes = 16;  // compared in parallel
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// floor(random / 2^64 * total): uniform over [0, total), with a bias below 2^-64 * total.
uint64_t ScaleRandom(uint64_t random, uint64_t total) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(random) * total >> 64);
}

double ExponentIn(const TokenDistribution& all, float logit) {
  return SoftmaxExponent(logit, all.best_logit, all.scale);
}

uint64_t WeightIn(const TokenDistribution& all, float logit) {
  return SoftmaxWeight(ExponentIn(all, logit));
}

double LeastExponentOfMinP(float min_p) {
  return min_p > 0 ? ExactLog(min_p) * kLog2E : -std::numeric_limits<double>::infinity();
}

// Returns a bound for top_p: all tokens below it hold together less than the share 1 - top_p, so
// top_p keeps none of them.
double LeastExponentOfTopP(float top_p, size_t vocabulary, const TokenDistribution& all) {
  constexpr double kSlack = 1e-6;  // larger than the rounding errors here
  const double share = 1.0 - static_cast<double>(top_p);
  const double weight = static_cast<double>(all.total) * share / static_cast<double>(vocabulary);
  return ExactLog(weight) * kLog2E - kSoftmaxWeightBits - kSlack;
}

bool KeepsTopK(const DrawRule& rule, size_t vocabulary) {
  return rule.top_k > 0 && static_cast<size_t>(rule.top_k) < vocabulary;
}

TokenId DrawFromAll(std::span<const float> logits, const TokenDistribution& all, uint64_t random,
                    std::span<const uint64_t> chunk_weights) {
  uint64_t rest = ScaleRandom(random, all.total);
  size_t chunk = 0;
  while (rest >= chunk_weights[chunk]) rest -= chunk_weights[chunk++];
  for (size_t token = chunk * kDrawChunk;; ++token) {
    const uint64_t weight = WeightIn(all, logits[token]);
    if (rest < weight) return static_cast<TokenId>(token);
    rest -= weight;
  }
}

}  // namespace

ChunkMaximum MaximumOf(std::span<const float> logits) {
  constexpr float kHighest = std::numeric_limits<float>::max();
  float best[kLanes];
  uint32_t bad[kLanes] = {};
  std::fill_n(best, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = logits[i + lane];
      best[lane] = value > best[lane] ? value : best[lane];
      bad[lane] |= !(value <= kHighest) ? ~0u : 0u;
    }
  }
  for (; i < logits.size(); ++i) {
    best[0] = logits[i] > best[0] ? logits[i] : best[0];
    bad[0] |= !(logits[i] <= kHighest) ? ~0u : 0u;
  }
  return {*std::max_element(best, best + kLanes),
          std::all_of(bad, bad + kLanes, [](uint32_t lane) { return lane == 0; })};
}

void AppendMaxima(std::span<const float> logits, std::vector<ChunkMaximum>& maxima) {
  for (size_t begin = 0; begin < logits.size(); begin += kDrawChunk) {
    maxima.push_back(MaximumOf(logits.subspan(begin, std::min(kDrawChunk, logits.size() - begin))));
  }
}

RankedToken BestOf(std::span<const float> logits, std::span<const ChunkMaximum> maxima) {
  float best = -kInfinity;
  size_t best_chunk = 0;
  for (size_t chunk = 0; chunk < maxima.size(); ++chunk) {
    if (!maxima[chunk].valid) return {0, kDrawNotANumber};
    if (maxima[chunk].value > best) {
      best = maxima[chunk].value;
      best_chunk = chunk;
    }
  }
  if (best == -kInfinity) return {best, kDrawNothingAllowed};
  const auto begin = logits.begin() + static_cast<ptrdiff_t>(best_chunk * kDrawChunk);
  return {best, static_cast<TokenId>(std::find(begin, logits.end(), best) - logits.begin())};
}

void SelectTop(std::span<const float> logits, size_t count, std::vector<RankedToken>& top) {
  top.clear();
  if (count == 0) return;
  for (size_t token = 0; token < count; ++token) {
    top.push_back({logits[token], static_cast<TokenId>(token)});
  }
  // Min-heap by rank: the front is the lowest rank kept. Token ids rise in this loop, so an equal
  // logit never displaces the front.
  std::make_heap(top.begin(), top.end(), Outranks);
  for (size_t token = count; token < logits.size(); ++token) {
    if (!(logits[token] > top.front().logit)) continue;
    std::pop_heap(top.begin(), top.end(), Outranks);
    top.back() = {logits[token], static_cast<TokenId>(token)};
    std::push_heap(top.begin(), top.end(), Outranks);
  }
}

bool ReadsChunkWeights(const DrawRule& rule, size_t vocabulary) {
  return !KeepsTopK(rule, vocabulary) && (rule.top_p < 1 || !(rule.min_p > 0));
}

RankedToken TokenDrawer::FindBest(std::span<const float> logits) {
  maxima_.clear();
  AppendMaxima(logits, maxima_);
  return BestOf(logits, maxima_);
}

std::span<const uint64_t> TokenDrawer::SumWeights(std::span<const float> logits,
                                                  TokenDistribution& distribution) {
  chunk_weights_.clear();
  distribution.total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kDrawChunk) {
    chunk_weights_.push_back(
        SumSoftmaxWeights(logits.subspan(begin, std::min(kDrawChunk, logits.size() - begin)),
                          distribution.best_logit, distribution.scale));
    distribution.total += chunk_weights_.back();
  }
  return chunk_weights_;
}

TokenId TokenDrawer::Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key) {
  return Draw(logits, rule, key, FindBest(logits));
}

TokenId TokenDrawer::Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key,
                          const RankedToken& best) {
  if (best.token < 0 || rule.temperature == 0) return best.token;
  TokenDistribution all{best.logit, ScaleOf(rule.temperature), 0};
  if (ReadsChunkWeights(rule, logits.size())) {
    return DrawWithWeights(logits, rule, key, best, SumWeights(logits, all));
  }
  const double least_exponent = LeastExponentOfMinP(rule.min_p);
  if (KeepsTopK(rule, logits.size())) {
    SelectTop(logits, rule.top_k, candidates_);
    std::sort(candidates_.begin(), candidates_.end(),
              [](const RankedToken& a, const RankedToken& b) { return a.token < b.token; });
    for (const RankedToken& candidate : candidates_) all.total += WeightIn(all, candidate.logit);
    std::erase_if(candidates_, [&](const RankedToken& candidate) {
      return ExponentIn(all, candidate.logit) < least_exponent;
    });
    // min_p and top_p both remove the lowest ranks, and the total for top_p includes what min_p
    // removed. So their order does not matter.
    if (rule.top_p < 1) KeepTopP(all, rule.top_p);
  } else {
    SelectFrom(logits, all, least_exponent);
  }
  return DrawFromCandidates(all, RandomBits(key));
}

TokenId TokenDrawer::DrawWithWeights(std::span<const float> logits, const DrawRule& rule,
                                     const DrawKey& key, const RankedToken& best,
                                     std::span<const uint64_t> chunk_weights) {
  TokenDistribution all{best.logit, ScaleOf(rule.temperature), 0};
  for (const uint64_t weight : chunk_weights) all.total += weight;
  if (!(rule.top_p < 1)) return DrawFromAll(logits, all, RandomBits(key), chunk_weights);
  SelectFrom(logits, all,
             std::max(LeastExponentOfMinP(rule.min_p),
                      LeastExponentOfTopP(rule.top_p, logits.size(), all)));
  KeepTopP(all, rule.top_p);
  return DrawFromCandidates(all, RandomBits(key));
}

void TokenDrawer::SelectFrom(std::span<const float> logits, const TokenDistribution& all,
                             double least_exponent) {
  candidates_.clear();
  for (size_t token = 0; token < logits.size(); ++token) {
    if (ExponentIn(all, logits[token]) < least_exponent) continue;
    candidates_.push_back({logits[token], static_cast<TokenId>(token)});
  }
}

// Quickselect by weight: halves the range until it holds only the last candidate to keep.
void TokenDrawer::KeepTopP(const TokenDistribution& all, float top_p) {
  const auto needed =
      static_cast<uint64_t>(std::ceil(static_cast<double>(top_p) * static_cast<double>(all.total)));
  ranked_ = candidates_;
  uint64_t before = 0;  // weight of [0, begin); those tokens outrank the rest
  size_t begin = 0;
  size_t end = ranked_.size();
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(ranked_.begin() + begin, ranked_.begin() + middle, ranked_.begin() + end,
                     Outranks);
    uint64_t half = 0;
    for (size_t i = begin; i < middle; ++i) half += WeightIn(all, ranked_[i].logit);
    if (before + half >= needed) {
      end = middle;
    } else {
      before += half;
      begin = middle;
    }
  }
  const RankedToken last = ranked_[begin];
  std::erase_if(candidates_,
                [&](const RankedToken& candidate) { return Outranks(last, candidate); });
}

TokenId TokenDrawer::DrawFromCandidates(const TokenDistribution& all, uint64_t random) const {
  uint64_t total = 0;
  for (const RankedToken& candidate : candidates_) total += WeightIn(all, candidate.logit);
  uint64_t rest = ScaleRandom(random, total);
  for (auto candidate = candidates_.begin();; ++candidate) {
    const uint64_t weight = WeightIn(all, candidate->logit);
    if (rest < weight) return candidate->token;
    rest -= weight;
  }
}

}  // namespace baton
