// Parameters of the kernels that draw tokens. Fields have the meaning that they have in SampleArgs
// and FeedDrawnTokensArgs of kernels/ops.h.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "kernels/row_draw.h"

namespace baton {

inline constexpr int kSampleChunk = 1024;      // logits that a block scans at once
inline constexpr int kMostSampleChunks = 512;  // of a vocabulary of 2^19
inline constexpr int kSampleThreads = 256;
inline constexpr int kSelectionBytes = 40 << 10;  // shared memory of each of the three kernels

// One struct for the three kernels of a draw. They run one after the other.
struct SampleParams {
  const float* logits;
  int64_t vocabulary;
  const RowDraw* draws;
  const LogitAddition* additions;
  const int32_t* first_addition;
  TokenId* tokens;
  const int32_t* first_token;
  int32_t chunks;  // of a row
  // Workspace, [draws, chunks].
  float* maxima;      // with the additions; NaN: a logit is NaN or +infinity
  uint64_t* weights;  // sums; set only where the draw reads them
};

struct FeedDrawnTokensParams {
  const TokenId* drawn;
  const int32_t* source;
  int32_t* token_ids;
  int64_t tokens;
};

}  // namespace baton
