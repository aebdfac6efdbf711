// Step 4 of NUMERICS §8 for the values of one tile: the outputs of a thread, slot after slot.
#pragma once

#include "kernels/cuda/attention_tile.cuh"

namespace baton::attention {

// Loads four neighbouring values of a row, widened.
template <typename Elements>
__device__ void LoadValues(const std::byte* from, float (&v)[4]) {
  if constexpr (sizeof(typename Elements::Value) == 4) {
    const float4 all = LoadFloat4(reinterpret_cast<const float*>(from));
    v[0] = all.x;
    v[1] = all.y;
    v[2] = all.z;
    v[3] = all.w;
  } else if constexpr (sizeof(typename Elements::Value) == 1) {
    const unsigned all = LoadWord(from);
#pragma unroll
    for (int d = 0; d < 4; ++d)
      v[d] = Elements::Widen(static_cast<uint8_t>(all >> (8 * d) & 0xffu));
  } else {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    v[0] = Elements::Widen(static_cast<uint16_t>(all.x & 0xffffu));
    v[1] = Elements::Widen(static_cast<uint16_t>(all.x >> 16));
    v[2] = Elements::Widen(static_cast<uint16_t>(all.y & 0xffffu));
    v[3] = Elements::Widen(static_cast<uint16_t>(all.y >> 16));
  }
}

template <typename Map, typename Elements, typename Shared>
__device__ void AddFloatValues(const Shared& shared, int stage, int first_row, int x,
                               int32_t tile_slot, Outputs<Map>& outputs) {
  TileBounds bounds[Map::kOut];
  int begin = kAttentionTile;
  int end = 0;
  bool full = true;
#pragma unroll
  for (int i = 0; i < Map::kOut; ++i) {
    const int row = first_row + Outputs<Map>::RowOf(x, i);
    bounds[i] = BoundsOf(shared, row, tile_slot);
    full = full && bounds[i].begin == 0 && bounds[i].end == kAttentionTile;
    if (bounds[i].begin >= bounds[i].end) continue;
    begin = bounds[i].begin < begin ? bounds[i].begin : begin;
    end = bounds[i].end > end ? bounds[i].end : end;
    const float alpha = shared.row_value(kAlpha, row);
#pragma unroll
    for (int quad = 0; quad < Map::kQuads; ++quad) {
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        outputs.o[i][quad][d] = r1::Multiply(outputs.o[i][quad][d], alpha);
      }
    }
  }
#pragma unroll 1
  for (int slot = begin & ~3; slot < end; slot += 4) {
    float p[Map::kOut][4];
#pragma unroll
    for (int i = 0; i < Map::kOut; ++i) {
      const int row = first_row + Outputs<Map>::RowOf(x, i);
      const float4 four = LoadFloat4(shared.scores(row) + slot);
      p[i][0] = four.x;
      p[i][1] = four.y;
      p[i][2] = four.z;
      p[i][3] = four.w;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int quad = 0; quad < Map::kQuads; ++quad) {
        float v[4];
        LoadValues<Elements>(shared.value(stage, slot + j) +
                                 Outputs<Map>::FirstOf(x, quad) * sizeof(typename Elements::Value),
                             v);
#pragma unroll
        for (int i = 0; i < Map::kOut; ++i) {
          // A slot that the row does not see takes no part: even a product with zero could change
          // the sign of a zero, or be NaN.
          if (!full && (slot + j < bounds[i].begin || slot + j >= bounds[i].end)) continue;
#pragma unroll
          for (int d = 0; d < 4; ++d) {
            outputs.o[i][quad][d] = r1::Fma(p[i][j], v[d], outputs.o[i][quad][d]);
          }
        }
      }
    }
  }
}

// Transposes four words of four bytes: byte b of result d is byte d of rows[b].
__device__ inline void TransposeBytes(const unsigned (&rows)[4], int (&columns)[4]) {
  const unsigned even01 = (rows[0] & 0x00ff00ffu) | (rows[1] & 0x00ff00ffu) << 8;
  const unsigned odd01 = (rows[0] >> 8 & 0x00ff00ffu) | (rows[1] & 0xff00ff00u);
  const unsigned even23 = (rows[2] & 0x00ff00ffu) | (rows[3] & 0x00ff00ffu) << 8;
  const unsigned odd23 = (rows[2] >> 8 & 0x00ff00ffu) | (rows[3] & 0xff00ff00u);
  columns[0] = static_cast<int>((even01 & 0xffffu) | even23 << 16);
  columns[1] = static_cast<int>((odd01 & 0xffffu) | odd23 << 16);
  columns[2] = static_cast<int>(even01 >> 16 | (even23 & 0xffff0000u));
  columns[3] = static_cast<int>(odd01 >> 16 | (odd23 & 0xffff0000u));
}

// A weight u is 256 * high + low + 128 with two signed bytes. A slot that the row does not see has
// u = 0, so it adds nothing for any bytes.
template <typename Map, typename Shared>
__device__ void AddInt8Values(const Shared& shared, int stage, int first_row, int x,
                              int32_t tile_slot, Outputs<Map>& outputs) {
#pragma unroll
  for (int quad = 0; quad < Map::kQuads; ++quad) {
    int highs[Map::kOut][4] = {};
    int lows[Map::kOut][4] = {};
    int bytes[4] = {};
#pragma unroll 1
    for (int slot = 0; slot < kAttentionTile; slot += 4) {
      unsigned rows[4];
      int v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rows[j] = LoadWord(shared.value(stage, slot + j) + Outputs<Map>::FirstOf(x, quad));
      }
      TransposeBytes(rows, v);
#pragma unroll
      for (int d = 0; d < 4; ++d) bytes[d] = __dp4a(v[d], 0x01010101, bytes[d]);
#pragma unroll
      for (int i = 0; i < Map::kOut; ++i) {
        const int row = first_row + Outputs<Map>::RowOf(x, i);
        const int high = *reinterpret_cast<const int*>(shared.weight_bytes(0, row) + slot);
        const int low = *reinterpret_cast<const int*>(shared.weight_bytes(1, row) + slot);
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          highs[i][d] = __dp4a(high, v[d], highs[i][d]);
          lows[i][d] = __dp4a(low, v[d], lows[i][d]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Map::kOut; ++i) {
      const int row = first_row + Outputs<Map>::RowOf(x, i);
      const TileBounds bounds = BoundsOf(shared, row, tile_slot);
      if (bounds.begin >= bounds.end) continue;
      const float alpha = shared.row_value(kAlpha, row);
      const float scale = shared.row_value(kWeightScale, row);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        const int sum = 256 * highs[i][d] + lows[i][d] + 128 * bytes[d];
        float& o = outputs.o[i][quad][d];
        o = r1::Fma(scale, static_cast<float>(sum), r1::Multiply(o, alpha));
      }
    }
  }
}

}  // namespace baton::attention
