// The arithmetic of a draw (NUMERICS §9, without penalties): from a row of logits to a token.
//
// Every draw on a CPU goes through this class: the host's Sampler (model/sampler.h) and the CPU's
// Sample op.
// A row can be scanned in chunks of kDrawChunk logits, by several threads: maxima are exact and
// weights are integers, so the token does not depend on who scanned which chunk.
//
// Thread safety: a TokenDrawer holds scratch memory; one thread at a time. The functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/strong_int.h"
#include "kernels/row_draw.h"

namespace baton {

inline constexpr size_t kDrawChunk = 1024;
inline constexpr double kLog2E = 0x1.71547652b82fep0;

struct RankedToken {
  float logit;
  TokenId token;
};
// Rank: the larger logit first, among equals the lower token id.
inline bool Outranks(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

struct ChunkMaximum {
  float value;
  bool valid;  // all logits are numbers below +infinity
};
ChunkMaximum MaximumOf(std::span<const float> logits);

// Appends the maximum of each chunk of `logits` to `maxima`.
void AppendMaxima(std::span<const float> logits, std::vector<ChunkMaximum>& maxima);
// The first token by rank, from the maxima of all chunks of the row. Where there is none, `token`
// is kDrawNotANumber or kDrawNothingAllowed.
RankedToken BestOf(std::span<const float> logits, std::span<const ChunkMaximum> maxima);

// Softmax of (logit - best_logit) * scale, a power of two.
struct TokenDistribution {
  float best_logit;
  double scale;
  uint64_t total;  // weight of the tokens that top_p counts
};
// Scale of a temperature above 0.
inline double ScaleOf(float temperature) { return kLog2E / static_cast<double>(temperature); }

// Fills `top` with the first `count` tokens by rank, in no order. REQUIRES: count <= logits.size().
void SelectTop(std::span<const float> logits, size_t count, std::vector<RankedToken>& top);
// Whether a draw by `rule` reads the weights of all chunks. REQUIRES: temperature > 0.
bool ReadsChunkWeights(const DrawRule& rule, size_t vocabulary);

class TokenDrawer {
 public:
  // The first token by rank of a whole row, or a code, as BestOf.
  RankedToken FindBest(std::span<const float> logits);
  // The sum of the weights of each chunk; `distribution.total` becomes the sum of all. Valid until
  // the next call.
  std::span<const uint64_t> SumWeights(std::span<const float> logits,
                                       TokenDistribution& distribution);

  // A token or a code, from a whole row.
  TokenId Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key);
  // As Draw, for a caller that has scanned the row: `best` is its first token by rank.
  TokenId Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key,
               const RankedToken& best);
  // As Draw, for a caller that has also summed the weights of each chunk.
  // REQUIRES: ReadsChunkWeights(rule, logits.size()).
  TokenId DrawWithWeights(std::span<const float> logits, const DrawRule& rule, const DrawKey& key,
                          const RankedToken& best, std::span<const uint64_t> chunk_weights);

 private:
  // Fills candidates_ with every token of at least this exponent, by id.
  void SelectFrom(std::span<const float> logits, const TokenDistribution& all,
                  double least_exponent);
  // Cuts candidates_ to the fewest by rank that hold this share of the total; by id.
  void KeepTopP(const TokenDistribution& all, float top_p);
  TokenId DrawFromCandidates(const TokenDistribution& all, uint64_t random) const;

  std::vector<ChunkMaximum> maxima_;
  std::vector<uint64_t> chunk_weights_;
  std::vector<RankedToken> candidates_;
  std::vector<RankedToken> ranked_;
};

}  // namespace baton
