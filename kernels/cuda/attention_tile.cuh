// One tile of 64 slots: scores, softmax and weighted values of NUMERICS §8, for the rows of a
// block.
//
// A chunk is RowsPerChunk rows, which kSplit warps compute together.
// - Scores: eight lanes share a slot. Each computes two of Dot16's lanes, so the query fits into
// the
//   registers of a thread. Then the eight lanes exchange and add partial sums in the order of
//   Tree16. After that, each has one score. In int8 pools the eight lanes divide the row's bytes
//   instead, because integer sums are exact.
// - Softmax: sixteen lanes share a row. Lane i has the slots i, i + 16, i + 32 and i + 48, which
// are
//   those of lane sum i.
// - Values: a thread has four neighbouring outputs of some rows, and adds the slots in order.
#pragma once

#include "kernels/cuda/attention_state.cuh"
#include "kernels/elementary.h"

namespace baton::attention {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

__device__ inline unsigned LoadWord(const std::byte* from) {
  return *reinterpret_cast<const unsigned*>(from);
}
__device__ inline float4 LoadFloat4(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// Slots [begin, end) of the tile that a row sees, counted from the tile's first. Empty if begin is
// not below end.
struct TileBounds {
  int begin;
  int end;
};
template <typename Shared>
__device__ TileBounds BoundsOf(const Shared& shared, int row, int32_t tile_slot) {
  const int64_t begin = int64_t{shared.row_begin(row)} - tile_slot;
  const int64_t end = int64_t{shared.row_end(row)} - tile_slot;
  return {static_cast<int>(begin < 0                ? 0
                           : begin > kAttentionTile ? kAttentionTile
                                                    : begin),
          static_cast<int>(end < 0                ? 0
                           : end > kAttentionTile ? kAttentionTile
                                                  : end)};
}

// Low 16 bits of the integer that stands for x (NUMERICS §7, §8). A NaN that a device operation
// made has the bits 0x7fffffff, and the CPU's has a payload of zeros (kernels/elementary.h).
__device__ inline int QuantizedShort(float x, float inverse) {
  const float product = r1::Multiply(x, inverse);
  uint32_t integer = r1::RoundInt(product).integer;
  if (product != product) {
    const uint32_t bits = __float_as_uint(x);
    integer = x == x || bits == 0x7fffffffu ? 0 : bits;
  }
  return static_cast<int16_t>(integer & 0xffffu);
}

// p · scale with the CPU's NaN: that of `scale`, if it is one, because the row's results depend on
// no other.
__device__ inline float WeightOf(float p, float scale) {
  return scale != scale ? scale : r1::Multiply(p, scale);
}

// Adds halves of a pair of partial scores over lanes that differ in bit kBit of their number. The
// lane keeps the upper half of `count` if the bit is set, otherwise the lower one.
template <int kCount, typename Number>
__device__ void Exchange(Number (&parts)[8], int lane_bit) {
  const bool upper = (threadIdx.x & lane_bit) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const Number sent = upper ? parts[i] : parts[i + kCount / 2];
    const Number kept = upper ? parts[i + kCount / 2] : parts[i];
    parts[i] = kept + __shfl_xor_sync(kWholeWarp, sent, lane_bit);
  }
}

// The queries of a chunk, for scores. Load puts them into shared memory once for each run. Fetch
// brings a thread's part into registers; it is live for one tile only.
template <typename Map, typename Elements>
struct FloatQuery {
  float q[Map::kRows][Map::kSteps][2];

  // `row(i)` points to the query of row i of the chunk, or is null. The chunk's threads call it.
  template <typename RowOf, typename Shared>
  __device__ static void Load(const PagedAttentionParams& p, const Shared& shared, int first_row,
                              int in_chunk, const RowOf& row) {
    for (int i = 0; i < Map::kRows; ++i) {
      const float* const from = row(i);
      for (int d = in_chunk; d < Map::kDimension; d += Map::kThreads) {
        shared.query(first_row + i)[d] = from != nullptr && d < p.head_dim ? from[d] : 0.0f;
      }
    }
  }

  template <typename Shared>
  __device__ void Fetch(const Shared& shared, int first_row) {
    const int pair = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < Map::kRows; ++i) {
#pragma unroll
      for (int step = 0; step < Map::kSteps; ++step) {
        const float2 both = *reinterpret_cast<const float2*>(shared.query(first_row + i) +
                                                             kLanes * step + 2 * pair);
        q[i][step][0] = both.x;
        q[i][step][1] = both.y;
      }
    }
  }

  // Writes the chunk's scores of slots [slot, slot + 4 * kBatch), for the rows from `first_row` on.
  template <typename Shared>
  __device__ void Score(const PagedAttentionParams& p, const Shared& shared, int stage,
                        int first_row, int slot) const {
    const int pair = threadIdx.x % 8;
    const int group = threadIdx.x % 32 / 8;
    float low[8] = {};
    float high[8] = {};
    const std::byte* keys[Map::kBatch];
#pragma unroll
    for (int b = 0; b < Map::kBatch; ++b) {
      keys[b] =
          shared.key(stage, slot + 4 * b + group) + 2 * pair * sizeof(typename Elements::Value);
    }
#pragma unroll
    for (int step = 0; step < Map::kSteps; ++step) {
#pragma unroll
      for (int b = 0; b < Map::kBatch; ++b) {
        float first;
        float second;
        const std::byte* from = keys[b] + step * kLanes * sizeof(typename Elements::Value);
        if constexpr (sizeof(typename Elements::Value) == 4) {
          const float2 both = *reinterpret_cast<const float2*>(from);
          first = both.x;
          second = both.y;
        } else if constexpr (sizeof(typename Elements::Value) == 1) {
          const unsigned both = *reinterpret_cast<const uint16_t*>(from);
          first = Elements::Widen(static_cast<uint8_t>(both & 0xffu));
          second = Elements::Widen(static_cast<uint8_t>(both >> 8));
        } else {
          const unsigned both = LoadWord(from);
          first = Elements::Widen(static_cast<uint16_t>(both & 0xffffu));
          second = Elements::Widen(static_cast<uint16_t>(both >> 16));
        }
#pragma unroll
        for (int i = 0; i < Map::kRows; ++i) {
          float& a = low[b * Map::kRows + i];
          float& c = high[b * Map::kRows + i];
          a = r1::Fma(q[i][step][0], first, a);
          c = r1::Fma(q[i][step][1], second, c);
        }
      }
    }
    // Tree16: lanes 8 apart are in threads 4 apart, and so on. The last sum is inside the thread.
    Exchange<8>(low, 4);
    Exchange<8>(high, 4);
    Exchange<4>(low, 2);
    Exchange<4>(high, 2);
    Exchange<2>(low, 1);
    Exchange<2>(high, 1);
    const int row = first_row + pair % Map::kRows;
    const int at = slot + 4 * (pair / Map::kRows) + group;
    float factor = p.softmax_scale;
    if constexpr (Elements::kScaled) factor = r1::Multiply(factor, shared.scales(stage, false)[at]);
    shared.scores(row)[at] = r1::Multiply(r1::Add(low[0], high[0]), factor);
  }
};

// The same for int8 pools. A query value is 256 * high + low + 128 with two signed bytes, so two
// products of bytes and the sum of the key's bytes give the exact product.
template <typename Map>
struct Int8Query {
  static constexpr int kWords = Map::kSteps / 2;          // of a row, for each of the eight lanes
  static constexpr int kPiece = kWords < 4 ? kWords : 4;  // words that a lane loads at once
  int high[Map::kRows][kWords];
  int low[Map::kRows][kWords];

  // First d of word `word`. Lanes read neighbouring pieces of 16 bytes, or of 8 in rows of 64.
  __device__ static int FirstOf(int lane, int word) {
    return (word / kPiece * 8 + lane) * kPiece * 4 + word % kPiece * 4;
  }

  __device__ static void LoadPiece(const std::byte* from, int (&words)[kPiece]) {
    if constexpr (kPiece == 4) {
      const int4 four = *reinterpret_cast<const int4*>(from);
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    } else {
      const int2 two = *reinterpret_cast<const int2*>(from);
      words[0] = two.x;
      words[1] = two.y;
    }
  }

  // The row's query in shared memory is the high words of eight lanes, then their low words.
  template <typename Shared>
  __device__ static int* WordsOf(const Shared& shared, int row, bool is_low, int lane) {
    return reinterpret_cast<int*>(shared.query(row)) + ((is_low ? 8 : 0) + lane) * kWords;
  }

  template <typename RowOf, typename Shared>
  __device__ static void Load(const PagedAttentionParams& p, const Shared& shared, int first_row,
                              int in_chunk, const RowOf& row) {
    if (in_chunk >= 32) return;
    const int lane = threadIdx.x % 8;
    for (int i = 0; i < Map::kRows; ++i) {
      const float* const from = row(i);
      uint32_t largest = 0;
      float x[kWords][4];
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const int d = FirstOf(lane, word) + byte;
          x[word][byte] = from != nullptr && d < p.head_dim ? from[d] : 0.0f;
          const uint32_t magnitude = r1::MagnitudeBits(x[word][byte]);
          largest = magnitude > largest ? magnitude : largest;
        }
      }
      for (int distance = 4; distance > 0; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(kWholeWarp, largest, distance);
        largest = other > largest ? other : largest;
      }
      if (in_chunk >= 8) continue;
      const float amax = __uint_as_float(largest);
      const float inverse = amax > 0 ? r1::Divide(32767.0f, amax) : 0.0f;
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        unsigned highs = 0;
        unsigned lows = 0;
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          const unsigned value = static_cast<unsigned>(QuantizedShort(x[word][byte], inverse));
          highs |= (value >> 8 & 0xffu) << (8 * byte);
          lows |= ((value - 128) & 0xffu) << (8 * byte);
        }
        WordsOf(shared, first_row + i, false, lane)[word] = static_cast<int>(highs);
        WordsOf(shared, first_row + i, true, lane)[word] = static_cast<int>(lows);
      }
      if (lane == 0) {
        shared.row_value(kFactor, first_row + i) =
            r1::Multiply(r1::Divide(amax, 32767.0f), p.softmax_scale);
      }
    }
  }

  template <typename Shared>
  __device__ void Fetch(const Shared& shared, int first_row) {
    const int lane = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < Map::kRows; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        high[i][word] = WordsOf(shared, first_row + i, false, lane)[word];
        low[i][word] = WordsOf(shared, first_row + i, true, lane)[word];
      }
    }
  }

  template <typename Shared>
  __device__ void Score(const PagedAttentionParams&, const Shared& shared, int stage, int first_row,
                        int slot) const {
    const int lane = threadIdx.x % 8;
    const int group = threadIdx.x % 32 / 8;
    int sums[8];
#pragma unroll
    for (int b = 0; b < Map::kBatch; ++b) {
      const std::byte* key = shared.key(stage, slot + 4 * b + group);
      int highs[Map::kRows] = {};
      int lows[Map::kRows] = {};
      int bytes = 0;
#pragma unroll
      for (int first = 0; first < kWords; first += kPiece) {
        int k[kPiece];
        LoadPiece(key + FirstOf(lane, first), k);
#pragma unroll
        for (int word = 0; word < kPiece; ++word) {
          bytes = __dp4a(k[word], 0x01010101, bytes);
#pragma unroll
          for (int i = 0; i < Map::kRows; ++i) {
            highs[i] = __dp4a(high[i][first + word], k[word], highs[i]);
            lows[i] = __dp4a(low[i][first + word], k[word], lows[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < Map::kRows; ++i) {
        sums[b * Map::kRows + i] = 256 * highs[i] + lows[i] + 128 * bytes;
      }
    }
    Exchange<8>(sums, 4);
    Exchange<4>(sums, 2);
    Exchange<2>(sums, 1);
    const int row = first_row + lane % Map::kRows;
    const int at = slot + 4 * (lane / Map::kRows) + group;
    const float factor =
        r1::Multiply(shared.row_value(kFactor, row), shared.scales(stage, false)[at]);
    shared.scores(row)[at] = r1::Multiply(static_cast<float>(sums[0]), factor);
  }
};

// Steps 2 to 4 but for the values: replaces the scores of the chunk by exponentials, and sets
// kAlpha. If the pool has scales, it multiplies the exponentials by those of V. In int8 pools it
// then makes the bytes of the weights. `part` is the warp's number in its chunk. Every lane of the
// warp calls it.
template <typename Map, typename Elements, typename Shared>
__device__ void Softmax(const Shared& shared, int stage, int first_row, int part, int32_t tile_slot,
                        SoftState<Map::kSoftRows>& state) {
  const int lane = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < Map::kSoftRows; ++i) {
    const int in_chunk = 2 * part + threadIdx.x % 32 / 16 + i * (Map::kThreads / 16);
    const bool exists = in_chunk < Map::kRows;
    const int row = first_row + (exists ? in_chunk : 0);
    TileBounds bounds = BoundsOf(shared, row, tile_slot);
    if (!exists) bounds = {0, 0};
    const bool sees = bounds.begin < bounds.end;
    float p[4];
    bool visible[4];
    float maximum = state.maximum[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int slot = lane + 16 * k;
      visible[k] = slot >= bounds.begin && slot < bounds.end;
      p[k] = visible[k] ? shared.scores(row)[slot] : 0.0f;
      if (visible[k]) maximum = p[k] > maximum ? p[k] : maximum;
    }
    for (int distance = 8; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, maximum, distance);
      maximum = other > maximum ? other : maximum;
    }
    const float alpha = r1::Exp(r1::Subtract(state.maximum[i], maximum));
    if (sees) state.sum[i] = r1::Multiply(state.sum[i], alpha);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      p[k] = visible[k] ? r1::Exp(r1::Subtract(p[k], maximum)) : 0.0f;
      if (visible[k]) state.sum[i] = r1::Add(state.sum[i], p[k]);
    }
    if constexpr (Elements::kScaled) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float scale = visible[k] ? shared.scales(stage, true)[lane + 16 * k] : 0.0f;
        p[k] = visible[k] ? WeightOf(p[k], scale) : 0.0f;
      }
    }
    if constexpr (Elements::kInt8) {
      float largest = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) largest = p[k] > largest ? p[k] : largest;
      for (int distance = 8; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(kWholeWarp, largest, distance);
        largest = other > largest ? other : largest;
      }
      const float inverse = largest > 0 ? r1::Divide(32767.0f, largest) : 0.0f;
      if (exists) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int u = visible[k] ? QuantizedShort(p[k], inverse) : 0;
          shared.weight_bytes(0, row)[lane + 16 * k] = static_cast<int8_t>(u >> 8);
          shared.weight_bytes(1, row)[lane + 16 * k] = static_cast<int8_t>((u & 0xff) - 128);
        }
        if (lane == 0) shared.row_value(kWeightScale, row) = r1::Divide(largest, 32767.0f);
      }
    } else if (exists) {
#pragma unroll
      for (int k = 0; k < 4; ++k) shared.scores(row)[lane + 16 * k] = p[k];
    }
    if (exists && lane == 0) shared.row_value(kAlpha, row) = alpha;
    if (sees) {
      state.maximum[i] = maximum;
      state.any[i] = true;
    }
  }
}

// The outputs of one thread: of row first_row + RowOf(i) the values d = FirstOf(quad) + 0…3.
template <typename Map>
struct Outputs {
  float o[Map::kOut][Map::kQuads][4];

  // `x` is the thread's number in its chunk.
  __device__ static int RowOf(int x, int i) { return x / Map::kAcross * Map::kOut + i; }
  __device__ static int FirstOf(int x, int quad) {
    return 4 * (x % Map::kAcross + quad * Map::kAcross);
  }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < Map::kOut; ++i) {
#pragma unroll
      for (int quad = 0; quad < Map::kQuads; ++quad) {
#pragma unroll
        for (int d = 0; d < 4; ++d) o[i][quad][d] = 0;
      }
    }
  }

  // Calls fn(output, number) for each of the thread's outputs.
  template <typename Function>
  __device__ void ForEach(const Function& fn) {
#pragma unroll
    for (int i = 0; i < Map::kOut; ++i) {
#pragma unroll
      for (int quad = 0; quad < Map::kQuads; ++quad) {
#pragma unroll
        for (int d = 0; d < 4; ++d) fn(o[i][quad][d], (i * Map::kQuads + quad) * 4 + d, i);
      }
    }
  }
};

}  // namespace baton::attention
