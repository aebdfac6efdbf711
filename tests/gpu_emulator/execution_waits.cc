// Where the threads of an execution wait for each other: warp operations, barriers, polls.
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

// The thread lets others run after so many atomic operations. Otherwise a thread that spins on one
// would never end.
constexpr uint32_t kAtomicsOfTurn = 8;

}  // namespace

void BlockOrders::Start() {
  const UnrecordedAccesses unrecorded;
  if (kRaceChecked || orders_ == nullptr) {
    orders_.reset();  // forgets what the old addresses ordered
    orders_ = std::make_unique<char[]>(2 * (kBarriers + kWarpLanes * kWarpLanes));
    of_atomics_.clear();
  }
}

void* BlockOrders::OfAtomic(const void* address) {
  const UnrecordedAccesses unrecorded;
  return &of_atomics_[address];
}

void Execution::Meet(uint32_t mask, const WarpOperation& operation, void* operands,
                     SourcePlace place) {
  Thread& me = *current_;
  Warp& warp = *me.warp;
  const uint32_t bit = LaneBit(me.lane);
  if ((mask & bit) == 0) {
    Fail(absl::StrFormat("%s with mask %08x, which lacks the calling lane %d", operation.name, mask,
                         me.lane),
         place);
  }
  // Any lane that waits for this one, or that this one will wait for, must be in the same
  // operation.
  uint32_t waiting = warp.arrived & mask;
  for (uint32_t left = warp.arrived & ~mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if ((warp.arrivals[lane].mask & bit) != 0) waiting |= LaneBit(lane);
  }
  if (waiting != 0) {
    const int first = std::countr_zero(waiting);
    const Warp::Arrival& other = warp.arrivals[first];
    if (other.operation != &operation || other.mask != mask || !(other.place == place)) {
      Fail(absl::StrFormat("%s with mask %08x, but lane %d is in %s with mask %08x at %s",
                           operation.name, mask, first, other.operation->name, other.mask,
                           ToString(other.place)),
           place);
    }
  }
  warp.arrivals[me.lane] = {&operation, mask, place};
  warp.operands[me.lane] = operands;
  warp.arrived |= bit;
  const uint32_t needed = mask & warp.live;
  if ((warp.arrived & needed) == needed) {
    CompleteMeeting(warp, needed, operation);
    return;
  }
  warp.runnable &= ~bit;
  me.waits_for = operation.name;
  me.waits_at = place;
  Suspend();
}

void Execution::CompleteMeeting(Warp& warp, uint32_t lanes, const WarpOperation& operation) {
  Progressed();
  warp.arrived &= ~lanes;
  warp.runnable |= lanes;
  if (operation.perform == nullptr) return;
  if (lanes == kAllLanes) {
    operation.perform(warp.operands.data(), lanes);
    return;
  }
  std::array<void*, kWarpLanes> operands = {};
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    operands[lane] = warp.operands[lane];
  }
  operation.perform(operands.data(), lanes);
}

// A lane has ended. Operations that waited for it go on without it.
void Execution::CheckEndedLanes(Warp& warp) {
  for (uint32_t left = warp.arrived; left != 0;) {
    const int lane = std::countr_zero(left);
    const Warp::Arrival arrival = warp.arrivals[lane];
    const uint32_t needed = arrival.mask & warp.live;
    if ((warp.arrived & needed) == needed) CompleteMeeting(warp, needed, *arrival.operation);
    left &= ~(arrival.mask | LaneBit(lane));
  }
}

void Execution::ArriveAtBarrier(int number, uint32_t expected, bool waits, SourcePlace place) {
  if (Skipped(Primitive::kBlockBarrier, place)) return;
  Thread& me = *current_;
  Warp& warp = *me.warp;
  Block& block = *warp.block;
  Barrier& barrier = block.barriers[number];
  if (barrier.arrived == 0) {
    barrier.expected = expected;
    barrier.first = place;
  } else if (barrier.expected != expected) {
    Fail(absl::StrCat("barrier ", number, " for ", expected, " threads, but others wait for ",
                      barrier.expected, " at ", ToString(barrier.first)),
         place);
  } else if (expected == 0 && !(barrier.first == place)) {
    Fail(absl::StrCat("__syncthreads, but other threads are in __syncthreads at ",
                      ToString(barrier.first)),
         place);
  }
  void* order = block.orders.OfBarrier(number, barrier.turn);
  Release(order);
  ++barrier.arrived;
  const uint32_t bit = LaneBit(me.lane);
  if (barrier.arrived == (expected == 0 ? block.live : expected)) {
    CompleteBarrier(block, barrier);
    if (waits) Acquire(order);
    return;
  }
  if (!waits) return;
  barrier.waiting[warp.number] |= bit;
  warp.runnable &= ~bit;
  me.waits_for = number == 0 && expected == 0 ? "__syncthreads" : "a named barrier";
  me.waits_at = place;
  Suspend();
  Acquire(order);
}

void Execution::CompleteBarrier(Block& block, Barrier& barrier) {
  Progressed();
  for (size_t i = 0; i < block.warps.size(); ++i) {
    block.warps[i].runnable |= barrier.waiting[i];
    barrier.waiting[i] = 0;
  }
  barrier.arrived = 0;
  barrier.turn ^= 1;
}

void Execution::CheckShared(const void* address, size_t bytes, const char* name,
                            SourcePlace place) {
  if (!block().shared.contains(address, bytes)) {
    Fail(absl::StrCat(name, ": the address is not in shared memory"), place);
  }
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
    Fail(absl::StrCat(name, ": the shared address is no multiple of 16"), place);
  }
}

void Execution::CheckGlobal(const void* address, const char* name, SourcePlace place) {
  const auto* const byte = static_cast<const std::byte*>(address);
  if (block().shared.contains(address, 1) || current().fiber.Owns(address) ||
      (byte >= params_.data() && byte < params_.data() + params_.size())) {
    Fail(absl::StrCat(name, ": the address is not in global memory"), place);
  }
}

void Execution::Poll(const char* waits_for, SourcePlace place) {
  Thread& me = *current_;
  const uint32_t bit = LaneBit(me.lane);
  me.warp->runnable &= ~bit;
  me.warp->polling |= bit;
  me.waits_for = waits_for;
  me.waits_at = place;
  Suspend();
}

void Execution::WaitForEarlier(SourcePlace place) {
  if (Skipped(Primitive::kKernelWait, place)) return;
  if (memory_closed_) {
    Poll("WaitForEarlierKernels", place);
    if (memory_closed_) early_->open_memory();
    memory_closed_ = false;
  }
  current_->waited = true;
}

void Execution::CountAtomic(const char* name, SourcePlace place) {
  if (++current_->atomics % kAtomicsOfTurn == 0) Poll(name, place);
}

}  // namespace baton::gpu_emulator
