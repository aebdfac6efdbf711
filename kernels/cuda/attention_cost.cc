#include "kernels/cuda/attention_cost.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/cuda/tensor_core_params.h"

namespace baton {
namespace {

// Decode is limited by bytes from the L2 cache: 5.7 TB/s for 132 multiprocessors at 1.7 GHz.
constexpr int64_t kBytesPerClock = 25;
// Barriers and latencies of a tile of 64 slots, for two blocks on a multiprocessor.
constexpr int64_t kLeastDecodeTileClocks = 500;
// A tile of 64 slots for a block of 128 rows with heads of 128. Warpgroups: docs/decisions/0026.
// The others: 350 TFLOP/s (docs/decisions/0024) for 4.2 MFLOP.
constexpr int64_t kWarpgroupsTileClocks = 1400;
constexpr int64_t kChunksTileClocks = 2700;
// Of the softmax, which does not depend on the head's size.
constexpr int64_t kLeastTileClocks = 900;
// A part of a unit, that is the shared segments of a cohort or the rest of a token: barriers,
// queries, and the first copies, which nothing overlaps.
constexpr int64_t kPartClocks = 5000;
constexpr int64_t kBlocks = 132;
// States of a thread block in the workspace of kMostAttentionStateBytes: 128 rows, heads of 128.
constexpr int64_t kStatesOfBlock = 30;
// With more items of a thread block (attention_plan.cuh), its pieces do not fit in any case.
constexpr int64_t kMostItemsOfBlock = 100;
// The estimates are rough, so sharing must win by a tenth.
constexpr int64_t kMarginPercent = 110;

int64_t TilesOf(int64_t slots) { return (slots + kAttentionTile - 1) / kAttentionTile; }
int64_t SegmentsOf(int64_t slots) { return (slots + kAttentionSegment - 1) / kAttentionSegment; }
int64_t RoundedUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns true if the states of a block with `quota` items may not fit, as FindShare does. Then no
// unit is divided among blocks. The least rest of a row has `least_rest` items.
bool UnitsStayWhole(int64_t quota, int64_t least_rest, int64_t tile_tokens) {
  // A share may begin inside the shared part or a rest.
  const int64_t parts = std::min(RoundedUp(quota, least_rest) + 2, tile_tokens + 1);
  const int64_t written = std::min(quota, quota / kT1GroupSegments + kT1GroupSegments + parts) + 1;
  return quota > kMostItemsOfBlock || written + 1 > kStatesOfBlock;
}

}  // namespace

bool PlansRowsFast(const PagedAttentionArgs& shape, Numerics numerics, int64_t rows) {
  const int64_t warps = ThreadsOfSharing(shape, numerics) / 32;
  return rows <= TokensOfSharingTile(shape, numerics) * warps;
}

int64_t ClocksSavedBySharing(const PagedAttentionArgs& shape, Numerics numerics,
                             std::span<const int32_t> slots,
                             std::span<const int32_t> shared_segments) {
  CHECK_EQ(slots.size(), shared_segments.size());
  const auto rows = static_cast<int64_t>(slots.size());
  const int64_t bytes_of_tile = 2 * kAttentionTile * shape.head_dim * KvTypeBytes(shape.kv.type);
  const int64_t decode_tile = std::max(bytes_of_tile / kBytesPerClock, kLeastDecodeTileClocks);
  const int64_t of_128 =
      UsesWarpgroups(shape, numerics) ? kWarpgroupsTileClocks : kChunksTileClocks;
  const int64_t chunk_tile =
      std::max(of_128 * std::min<int64_t>(shape.head_dim, 128) / 128, kLeastTileClocks);
  const int64_t tile_tokens = TokensOfSharingTile(shape, numerics);
  int64_t decode = 0;
  int64_t chunks = 0;
  int64_t items = 0;
  int64_t least_rest = INT32_MAX;  // items
  int64_t of_tile = 0;             // clocks
  int64_t most_of_tile = 0;
  int32_t shared_slots = 0;  // of the row's cohort
  for (int64_t row = 0; row < rows; ++row) {
    if (row % tile_tokens == 0) of_tile = 0;
    const bool begins = row % tile_tokens == 0 || shared_segments[row] == 0;
    if (begins) {
      const bool is_last = row + 1 == rows || (row + 1) % tile_tokens == 0;
      const int32_t mine = shared_segments[row];
      const int32_t segments = mine != 0 || is_last ? mine : shared_segments[row + 1];
      shared_slots = segments * kAttentionSegment;
      if (segments > 0) of_tile += TilesOf(shared_slots) * chunk_tile + kPartClocks;
      items += segments;
    }
    decode += TilesOf(slots[row]) * decode_tile;
    const int64_t rest = slots[row] - shared_slots;
    if (rest > 0) {
      of_tile += TilesOf(rest) * chunk_tile + kPartClocks;
      items += SegmentsOf(rest);
      least_rest = std::min(least_rest, SegmentsOf(rest));
    }
    const bool ends = row + 1 == rows || (row + 1) % tile_tokens == 0;
    if (ends) chunks += of_tile;
    most_of_tile = std::max(most_of_tile, of_tile);
  }
  if (UnitsStayWhole(RoundedUp(items * shape.kv_heads, kBlocks), least_rest, tile_tokens)) {
    // As long as the blocks with most units take, while others have no work.
    const int64_t units = RoundedUp(rows, tile_tokens) * shape.kv_heads;
    chunks = most_of_tile * RoundedUp(units, kBlocks) * kBlocks / shape.kv_heads;
  }
  return decode - chunks * kMarginPercent / 100;
}

}  // namespace baton
