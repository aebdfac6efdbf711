// Draws a token from a row of logits (NUMERICS §9, without penalties).
//
// Every draw on a CPU uses this class: the host's Sampler (model/sampler.h) and the CPU's Sample
// op. Several threads can scan a row in chunks of kDrawChunk logits. Maxima are exact and weights
// are integers, so the drawn token does not depend on how threads share the chunks.
//
// Thread safety: a TokenDrawer holds scratch memory, so one thread at a time may use it. The free
// functions are pure.
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
// Order of ranks: the larger logit first; among equal logits the lower token id.
inline bool Outranks(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

struct ChunkMaximum {
  float value;
  bool valid;  // false: a logit is NaN or +infinity
};
// Returns the maximum of `logits`, which may be a chunk or a whole row.
ChunkMaximum MaximumOf(std::span<const float> logits);

// Appends the maximum of each chunk of `logits` to `maxima`.
void AppendMaxima(std::span<const float> logits, std::vector<ChunkMaximum>& maxima);
// Returns the first token by rank, given the maxima of all chunks of the row. If the row has none,
// `token` is kDrawNotANumber or kDrawNothingAllowed.
RankedToken BestOf(std::span<const float> logits, std::span<const ChunkMaximum> maxima);

// Softmax to base 2: a token's weight is 2^((logit - best_logit) * scale).
struct TokenDistribution {
  float best_logit;
  double scale;
  uint64_t total;  // weight of the tokens that remain after top_k
};
// Returns the scale for a temperature above 0.
inline double ScaleOf(float temperature) { return kLog2E / static_cast<double>(temperature); }

// Fills `top` with the first `count` tokens by rank, unordered. REQUIRES: count <= logits.size().
void SelectTop(std::span<const float> logits, size_t count, std::vector<RankedToken>& top);
// Returns true if a draw by `rule` needs the weights of all chunks. REQUIRES: temperature > 0.
bool ReadsChunkWeights(const DrawRule& rule, size_t vocabulary);

class TokenDrawer {
 public:
  // Returns the first token by rank of a whole row, or a code like BestOf.
  RankedToken FindBest(std::span<const float> logits);
  // Returns the sum of weights of each chunk and sets `distribution.total` to the sum of all. The
  // span is valid until the next call.
  std::span<const uint64_t> SumWeights(std::span<const float> logits,
                                       TokenDistribution& distribution);

  // Draws from a whole row. Returns a token or a code.
  TokenId Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key);
  // Like Draw, for a caller that has already scanned the row. `best` is its first token by rank.
  TokenId Draw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key,
               const RankedToken& best);
  // Like Draw, for a caller that has also summed the weights of each chunk.
  // REQUIRES: ReadsChunkWeights(rule, logits.size()).
  TokenId DrawWithWeights(std::span<const float> logits, const DrawRule& rule, const DrawKey& key,
                          const RankedToken& best, std::span<const uint64_t> chunk_weights);

 private:
  // Fills candidates_ with every token whose exponent is at least `least_exponent`, by rising id.
  void SelectFrom(std::span<const float> logits, const TokenDistribution& all,
                  double least_exponent);
  // Reduces candidates_ to the fewest by rank that hold the share `top_p` of the total, by rising
  // id.
  void KeepTopP(const TokenDistribution& all, float top_p);
  TokenId DrawFromCandidates(const TokenDistribution& all, uint64_t random) const;

  std::vector<ChunkMaximum> maxima_;
  std::vector<uint64_t> chunk_weights_;
  std::vector<RankedToken> candidates_;
  std::vector<RankedToken> ranked_;
};

}  // namespace baton
