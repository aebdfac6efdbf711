#include "tests/gpu_emulator/warp_operations.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

struct ShuffleOperands {
  uint64_t value;
  uint64_t result;
  int source;  // lane
};

void PerformShuffle(void* const* operands, uint32_t lanes) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    auto* mine = static_cast<ShuffleOperands*>(operands[std::countr_zero(left)]);
    const auto* source = static_cast<const ShuffleOperands*>(operands[mine->source]);
    mine->result = source == nullptr ? kUndefined : source->value;
  }
}

constexpr WarpOperation kShuffles[] = {{"__shfl_sync", &PerformShuffle},
                                       {"__shfl_up_sync", &PerformShuffle},
                                       {"__shfl_down_sync", &PerformShuffle},
                                       {"__shfl_xor_sync", &PerformShuffle}};

struct VoteOperands {
  bool value;
  Votes votes;
};

void PerformVote(void* const* operands, uint32_t lanes) {
  uint32_t ballot = 0;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (static_cast<const VoteOperands*>(operands[lane])->value) ballot |= LaneBit(lane);
  }
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    static_cast<VoteOperands*>(operands[std::countr_zero(left)])->votes = {ballot, ballot != 0,
                                                                           ballot == lanes};
  }
}

constexpr WarpOperation kVote = {"a warp vote", &PerformVote};

struct ReduceOperands {
  uint32_t value;
  Reduction kind;
};

uint32_t Combine(Reduction kind, uint32_t a, uint32_t b) {
  const auto signed_a = static_cast<int32_t>(a), signed_b = static_cast<int32_t>(b);
  switch (kind) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMinSigned:
      return static_cast<uint32_t>(std::min(signed_a, signed_b));
    case Reduction::kMaxSigned:
      return static_cast<uint32_t>(std::max(signed_a, signed_b));
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      return a ^ b;
  }
  return 0;
}

void PerformReduce(void* const* operands, uint32_t lanes) {
  const auto* first = static_cast<const ReduceOperands*>(operands[std::countr_zero(lanes)]);
  uint32_t sum = first->value;
  for (uint32_t left = lanes & (lanes - 1); left != 0; left &= left - 1) {
    const auto* other = static_cast<const ReduceOperands*>(operands[std::countr_zero(left)]);
    if (other->kind != first->kind) ThisExecution().Fail("lanes disagree on the reduction", {});
    sum = Combine(first->kind, sum, other->value);
  }
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    static_cast<ReduceOperands*>(operands[std::countr_zero(left)])->value = sum;
  }
}

constexpr WarpOperation kReduce = {"a warp reduction", &PerformReduce};

// The operands are the turn of the mask's first lane.
void PerformSyncWarp(void* const* operands, uint32_t lanes) {
  *static_cast<uint8_t*>(operands[std::countr_zero(lanes)]) ^= 1;
}

constexpr WarpOperation kSyncWarp = {"__syncwarp", &PerformSyncWarp};

constexpr WarpOperation kBarSync = {"bar.sync", nullptr};
constexpr WarpOperation kBarArrive = {"bar.arrive", nullptr};

// bar.sync and bar.arrive are aligned instructions: the hardware counts whole warps, and all lanes
// of a warp must execute the same one.
void ArriveAtNamedBarrier(int barrier, uint32_t threads, bool waits, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (barrier < 1 || barrier >= kBarriers) {
    execution.Fail(absl::StrCat("a named barrier with number ", barrier, ", not in [1, ",
                                kBarriers - 1, "]; 0 is that of __syncthreads"),
                   place);
  }
  if (threads == 0 || threads % kWarpLanes != 0) {
    execution.Fail(
        absl::StrCat("a named barrier for ", threads, " threads, which are no whole warps"), place);
  }
  if (!execution.Skipped(Primitive::kBlockBarrier, place)) {
    execution.Meet(kAllLanes, waits ? kBarSync : kBarArrive, nullptr, place);
  }
  execution.ArriveAtBarrier(barrier, threads, waits, place);
}

}  // namespace

void SyncWarp(uint32_t mask, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kWarpBarrier, place)) return;
  Warp& warp = *execution.current().warp;
  const int first = std::countr_zero(mask | LaneBit(kWarpLanes - 1));
  void* order = warp.block->orders.OfWarp(warp.number, first, warp.turns[first]);
  Release(order);
  execution.Meet(mask, kSyncWarp, &warp.turns[first], place);
  Acquire(order);
}

uint64_t ShuffleValue(Shuffle kind, uint32_t mask, uint64_t value, uint32_t argument, int width,
                      SourcePlace place) {
  Execution& execution = ThisExecution();
  if (width < 1 || width > kWarpLanes || !std::has_single_bit(static_cast<uint32_t>(width))) {
    execution.Fail(absl::StrCat("a shuffle of width ", width), place);
  }
  const int lane = execution.current().lane;
  const int first = lane & ~(width - 1);
  const int last = first + width - 1;
  int source = lane;
  switch (kind) {
    case Shuffle::kFrom:
      source = first + static_cast<int>(argument & static_cast<uint32_t>(width - 1));
      break;
    case Shuffle::kUp:
      source = argument > uint32_t(lane - first) ? lane : lane - int(argument);
      break;
    case Shuffle::kDown:
      source = argument > uint32_t(last - lane) ? lane : lane + int(argument);
      break;
    case Shuffle::kXor:
      source = static_cast<int>(static_cast<uint32_t>(lane) ^ argument);
      if (source > last || source < 0) source = lane;
      break;
  }
  ShuffleOperands operands = {value, 0, source};
  execution.Meet(mask, kShuffles[static_cast<int>(kind)], &operands, place);
  return operands.result;
}

Votes Vote(uint32_t mask, bool value, SourcePlace place) {
  VoteOperands operands = {value, {}};
  ThisExecution().Meet(mask, kVote, &operands, place);
  return operands.votes;
}

uint32_t Reduce(Reduction kind, uint32_t mask, uint32_t value, SourcePlace place) {
  ReduceOperands operands = {value, kind};
  ThisExecution().Meet(mask, kReduce, &operands, place);
  return operands.value;
}

void SyncBlock(SourcePlace place) { ThisExecution().ArriveAtBarrier(0, 0, true, place); }

void SyncNamedBarrier(int barrier, uint32_t threads, SourcePlace place) {
  ArriveAtNamedBarrier(barrier, threads, true, place);
}

void ArriveNamedBarrier(int barrier, uint32_t threads, SourcePlace place) {
  ArriveAtNamedBarrier(barrier, threads, false, place);
}

// The C++ memory model's fences, as far as kernels use them. A fence makes the thread's next atomic
// operation release what came before. It acquires what was released at the address of the thread's
// last atomic operation. Threads of different blocks need fences of the device on both sides.
void Fence(FenceScope scope, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kFence, place)) return;
  Thread& me = execution.current();
  me.fenced = std::max(me.fenced, scope);
  if (me.last_atomic != nullptr) AcquireAt(me.last_atomic, scope);
}

void ReleaseAt(const void* address, FenceScope scope) {
  if (!kRaceChecked || scope == FenceScope::kNone) return;
  Release(ThisExecution().block().orders.OfAtomic(address));
  if (scope == FenceScope::kDevice) Release(const_cast<void*>(address));
}

void AcquireAt(const void* address, FenceScope scope) {
  if (!kRaceChecked || scope == FenceScope::kNone) return;
  Acquire(ThisExecution().block().orders.OfAtomic(address));
  if (scope == FenceScope::kDevice) Acquire(const_cast<void*>(address));
}

void BeforeAtomic(const void* address, size_t bytes, const char* name, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    execution.Fail(absl::StrCat(name, " at an address that is no multiple of ", bytes), place);
  }
  if (!execution.block().shared.contains(address, bytes)) execution.RequireWait(name, place);
  execution.CountAtomic(name, place);
  Thread& me = execution.current();
  ReleaseAt(address, me.fenced);
  me.fenced = FenceScope::kNone;
}

void AfterAtomic(const void* address) { ThisExecution().current().last_atomic = address; }

void NoteReadOnly(const void* address, size_t bytes, void* caller) {
  ThisExecution().NoteReadOnly(address, bytes, caller);
}

void Sleep(SourcePlace place) { ThisExecution().Poll("__nanosleep", place); }

void Trap(SourcePlace place) { ThisExecution().Fail("__trap", place); }

void* SharedBase() { return ThisExecution().block().shared.data(); }

}  // namespace baton::gpu_emulator
