#include "tests/gpu_emulator/bulk_copy.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/mbarrier.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kBulkAlignment = 16;
constexpr uint32_t kTileAlignment = 128;

void CheckBulk(const void* shared, const void* global, uint32_t bytes, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.RequireHopper("a bulk copy", place);
  execution.CheckShared(shared, bytes, "a bulk copy", place);
  execution.CheckGlobal(global, "a bulk copy", place);
  if (bytes == 0 || bytes % kBulkAlignment != 0 ||
      reinterpret_cast<uintptr_t>(global) % kBulkAlignment != 0) {
    execution.Fail(absl::StrCat("a bulk copy of ", bytes,
                                " bytes: its address and size must be multiples of 16"),
                   place);
  }
}

void LandTile(const TileLoad& load) {
  const TiledTensor& tensor = load.tensor;
  const auto* source = static_cast<const std::byte*>(tensor.address);
  const auto base = static_cast<uint32_t>(load.shared - load.block->shared.data());
  std::array<uint32_t, kMostTileRank> at = {};
  for (uint32_t offset = 0; offset < load.bytes; offset += tensor.element_bytes) {
    uint64_t from = 0;
    bool inside = true;
    for (int i = 0; i < tensor.rank; ++i) {
      const int64_t coordinate = int64_t{load.first[i]} + at[i];
      inside &= coordinate >= 0 && coordinate < static_cast<int64_t>(tensor.sizes[i]);
      from += static_cast<uint64_t>(coordinate) * tensor.stride_bytes[i];
    }
    constexpr std::byte kZeros[16] = {};
    std::byte* to = load.block->shared.data() + Swizzled(base + offset, tensor.swizzle);
    load.block->shared.StoreAsync(to, inside ? source + from : kZeros, tensor.element_bytes);
    for (int i = 0; i < tensor.rank && ++at[i] == tensor.box[i]; ++i) at[i] = 0;
  }
}

void Issue(const TileLoad& load) {
  Execution& execution = ThisExecution();
  const auto& unfenced = execution.block().unfenced_barriers;
  if (std::ranges::find(unfenced, load.barrier) != unfenced.end()) {
    execution.Fail("a copy to a barrier that was initialised without FenceBarrierInit", load.place);
  }
  NoteWrite(load.shared, load.bytes);
  NoteCopyToMbarrier(load.barrier, load.place);
  if (!execution.memory_closed() && execution.LandsEarly()) {
    LandLoad(load);
  } else {
    execution.Delay(load);
  }
}

}  // namespace

void LandLoad(const TileLoad& load) {
  const UnrecordedAccesses unrecorded;
  if (load.global != nullptr) {
    load.block->shared.StoreAsync(load.shared, load.global, load.bytes);
  } else {
    LandTile(load);
  }
  CompleteMbarrierBytes(load.barrier, load.bytes);
}

void IssueBulkLoad(void* shared, const void* global, uint32_t bytes, uint64_t* barrier,
                   bool constant, SourcePlace place) {
  CheckBulk(shared, global, bytes, place);
  if (!constant) ThisExecution().RequireWait("LoadBulk", place);
  TileLoad load;
  load.block = &ThisExecution().block();
  load.shared = static_cast<std::byte*>(shared);
  load.barrier = barrier;
  load.bytes = bytes;
  load.global = global;
  load.place = place;
  NoteRead(global, bytes);
  Issue(load);
}

void IssueTileLoad(void* shared, const TensorMap* map, uint64_t* barrier, const int* coordinates,
                   int rank, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.RequireHopper("a tile copy", place);
  execution.RequireWait("LoadTile", place);
  TileLoad load;
  if (reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0 ||
      !DecodeTensorMap(*map, load.tensor)) {
    execution.Fail("the tensor map is not one, or not aligned to 64 bytes", place);
  }
  if (load.tensor.rank != rank) {
    execution.Fail(absl::StrCat("a tile of rank ", rank, " of a tensor of rank ", load.tensor.rank),
                   place);
  }
  load.block = &execution.block();
  load.shared = static_cast<std::byte*>(shared);
  load.barrier = barrier;
  load.bytes = load.tensor.box_bytes();
  load.place = place;
  for (int i = 0; i < rank; ++i) load.first[i] = coordinates[i];
  execution.CheckShared(shared, load.bytes, "a tile copy", place);
  if ((load.shared - load.block->shared.data()) % kTileAlignment != 0) {
    execution.Fail("a tile must begin at a multiple of 128 bytes", place);
  }
  Issue(load);
}

void IssueBulkStore(void* global, const void* shared, uint32_t bytes, SourcePlace place) {
  CheckBulk(shared, global, bytes, place);
  Execution& execution = ThisExecution();
  execution.RequireWait("StoreBulk", place);
  if (!execution.block().shared.AsyncProxySees(shared, bytes)) {
    execution.Fail("a bulk store of shared memory that was stored to without FenceProxyAsync",
                   place);
  }
  execution.current().stores.Issue(global, shared, bytes, bytes, execution.LandsEarly());
}

void FenceAsyncProxy(SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kProxyFence, place)) return;
  execution.block().shared.FenceAsyncProxy();
}

void CommitBulkStoreGroup() { ThisExecution().current().stores.Commit(); }

void WaitBulkStoreGroups(uint32_t groups, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kBulkStoreWait, place)) return;
  execution.current().stores.Wait(groups);
}

}  // namespace baton::gpu_emulator
