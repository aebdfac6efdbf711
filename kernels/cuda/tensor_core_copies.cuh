// Copies tiles of K and V to a ring of stages, for the attention of warpgroups, and defines their
// places in shared memory. The four warps of one warpgroup copy.
//
// If rows see all slots of a tile, tile copies (TMA) copy it in boxes: one box for each block of
// the pool, each panel, and K or V. Other tiles are copied row by row (cp.async), because their
// blocks may not exist, or may be smaller than the swizzle. Slots that no row sees become zeros.
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/tensor_core_unit.cuh"

namespace baton::t1 {

template <typename PoolType, int kHeadDim>
struct WarpgroupsShared {
  using Pool = PoolType;
  static constexpr int kDim = kHeadDim;
  static constexpr bool kOneToken = false;
  static constexpr int kPanels = Panels(kDim);
  std::byte* base;

  __device__ static constexpr WarpgroupsLayout layout() { return WarpgroupsLayoutOf(kDim); }
  static constexpr int kStages = WarpgroupsLayoutOf(kDim).stages;
  // Panel `panel` of V of a stage; panel kPanels is the one of ones.
  __device__ std::byte* values(int stage, int panel) const {
    return base + stage * kPanels * kPanelBytes + panel * values_distance(stage);
  }
  // Bytes from a panel of V to the next.
  __device__ static int values_distance(int stage) { return (2 * kStages - stage) * kPanelBytes; }
  // With one panel, those of K follow those of V. With two, the first ones alternate.
  __device__ std::byte* keys(int stage, int panel) const {
    const int number = kPanels == 1 ? kStages + stage
                       : panel == 0 ? 2 * stage + 1
                                    : 3 * kStages + stage;
    return base + number * kPanelBytes;
  }
  // The place of byte `byte` of a slot's row in `stage`.
  __device__ std::byte* place(int stage, bool value, int slot, int byte) const {
    const int panel = byte / kPanelRowBytes;
    return (value ? values(stage, panel) : keys(stage, panel)) +
           ChunkOffset(kAttentionTile, slot, byte / 16 % 8) + byte % 16;
  }
  // Barrier of a stage: a phase ends when the four warps that copy have arrived.
  __device__ uint64_t* full(int stage) const {
    return reinterpret_cast<uint64_t*>(base + layout().barriers) + stage;
  }
  __device__ int64_t* offsets() const {
    return reinterpret_cast<int64_t*>(base + layout().offsets);
  }
  __device__ int64_t* scratch() const {
    return reinterpret_cast<int64_t*>(base + layout().scratch);
  }
  __device__ BlockWork& work() const { return *reinterpret_cast<BlockWork*>(base + layout().work); }
  __device__ int32_t* bounds() const { return reinterpret_cast<int32_t*>(base + layout().bounds); }
  __device__ int32_t* all_see() const { return bounds() + 2 * kWarpgroupsRows; }
  __device__ int32_t* items_before() const {
    return reinterpret_cast<int32_t*>(base + layout().before);
  }
};

// A thread's view of the warpgroup that copies. A tile is issued kStages − 2 tiles before it is
// computed, and its rows have landed one tile before.
template <typename Pool, int kDim>
class TileCopies {
 public:
  using SharedMemory = WarpgroupsShared<Pool, kDim>;
  using Rows = Unit<SharedMemory, kWarpgroupsRows>;
  static constexpr int kStages = SharedMemory::kStages;
  static constexpr int kAhead = kStages - 3;  // tiles that may be in flight when one must land
  static_assert(kAhead >= 1);

  __device__ TileCopies(const TensorCoreAttentionParams& params, SharedMemory shared)
      : params_(params), p(params.paged), shared(shared) {}

  // Begins a run, whose slots are counted from `origin`, with tiles [tile, end). The first one
  // lands in the stage of `ring`. REQUIRES: no stage is in use.
  __device__ void Begin(const Rows& unit, int token, int32_t origin, int tile, int end,
                        const StageRing<kStages>& ring) {
    sequence_ = p.sequence_of_token[token];
#pragma unroll 1
    for (int i = 0; i < kStages - 2; ++i) Issue(unit, origin, tile + i, end, ring.After(i));
    Land(ring.slot);
  }

  // Goes on when `tile` is computed, in the stage of `ring`: the next tile lands. REQUIRES: every
  // warp has read the stages but that one and the one before.
  __device__ void Advance(const Rows& unit, int32_t origin, int tile, int end,
                          const StageRing<kStages>& ring) {
    Issue(unit, origin, tile + kStages - 2, end, ring.After(kStages - 2));
    Land(ring.After(1));
  }

 private:
  static constexpr int kWarpSlots = kAttentionTile / 4;  // that a warp copies row by row

  __device__ void Issue(const Rows& unit, int32_t origin, int tile, int end, int stage) {
    late_ <<= 1;
    if (tile < end) {
      const int32_t slot = origin + tile * kAttentionTile;
      bool all_seen = unit.IsFull(slot);
      if (!all_seen) {
        const int64_t mine = int64_t{slot} + threadIdx.x % 32;
        all_seen = __all_sync(kWholeWarp, unit.IsSeen(mine) && unit.IsSeen(mine + 32));
      }
      const int log2 = params_.box_tokens_log2;
      if (all_seen && log2 >= 0 && (slot & ((1 << log2) - 1)) == 0) {
        IssueBoxes(unit.work().kv_head, slot, stage);
      } else {
        IssueRows(unit, slot, stage);
        late_ |= 1;
      }
    }
    CommitCopies();
  }

  // A copy may land before its bytes are expected: the phase cannot end before all have arrived.
  __device__ void IssueBoxes(int kv_head, int32_t slot, int stage) const {
    uint64_t* const full = shared.full(stage);
    const int lane = threadIdx.x % 32;
    if (threadIdx.x / 32 % 4 != 0) {
      if (lane == 0) ArriveBarrier(full);
      return;
    }
    if (lane == 0) ArriveAndExpect(full, 2 * SharedMemory::kPanels * kPanelBytes);
    const int log2 = params_.box_tokens_log2;
    if (lane >= 2 * SharedMemory::kPanels * (kAttentionTile >> log2)) return;
    const int value = lane % 2;
    const int panel = lane / 2 % SharedMemory::kPanels;
    const int first = lane / 2 / SharedMemory::kPanels << log2;  // in the tile
    const int index = (slot + first) >> p.kv.block_size_log2;
    const int32_t block = p.block_tables != nullptr
                              ? p.block_tables[sequence_ * p.table_stride + index]
                              : p.first_block[sequence_] + index;
    std::byte* const to = value != 0 ? shared.values(stage, panel) : shared.keys(stage, panel);
    LoadTile(to + first * kPanelRowBytes, &params_.pool, full, panel * kPanelCols,
             slot + first - (index << p.kv.block_size_log2), kv_head, value, block);
  }

  // Each warp copies its own slots.
  __device__ void IssueRows(const Rows& unit, int32_t slot, int stage) const {
    const int lane = threadIdx.x % 32;
    const int first = threadIdx.x / 32 % 4 * kWarpSlots;
    if (lane < kWarpSlots) {
      const int64_t mine = int64_t{slot} + first + lane;
      shared.offsets()[first + lane] = unit.IsSeen(mine) ? SlotOffset(p, sequence_, mine) : -1;
    }
    __syncwarp();
    CopyTile<32, kWarpSlots>(p, shared, stage, unit.work().kv_head, shared.offsets(), lane, first);
    __syncwarp();  // the offsets were read
  }

  // The tile issued kAhead tiles ago lands in `stage`. Products read rows through another proxy.
  __device__ void Land(int stage) {
    WaitCopies<kAhead>();
    if ((late_ >> kAhead & 1) == 0) return;
    FenceProxyAsync();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ArriveBarrier(shared.full(stage));
  }

  const TensorCoreAttentionParams& params_;
  const PagedAttentionParams& p;
  const SharedMemory shared;
  unsigned late_ = 0;     // bit i: the tile issued i tiles ago came row by row
  int32_t sequence_ = 0;  // of the run's tokens
};

}  // namespace baton::t1
