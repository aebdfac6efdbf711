#include "tests/gpu_emulator/mbarrier.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

// Bit 63 is set, so that fresh shared memory is no barrier.
struct MbarrierState {
  uint32_t parity = 0;    // of the phase in progress
  uint32_t expected = 0;  // arrivals of each phase
  uint32_t pending = 0;   // arrivals that the phase still waits for
  int32_t bytes = 0;      // expected and not yet written
};

constexpr int kArrivalBits = 20;
constexpr int kByteBits = 21;
constexpr uint64_t kValid = uint64_t{1} << 63;

uint64_t Pack(const MbarrierState& state) {
  const auto bytes = static_cast<uint64_t>(state.bytes + static_cast<int32_t>(kMostPendingBytes));
  return kValid | state.parity | uint64_t{state.expected} << 1 |
         uint64_t{state.pending} << (1 + kArrivalBits) | bytes << (1 + 2 * kArrivalBits);
}

MbarrierState Unpack(uint64_t word) {
  MbarrierState state;
  state.parity = word & 1;
  state.expected = (word >> 1) & kMostArrivals;
  state.pending = (word >> (1 + kArrivalBits)) & kMostArrivals;
  const uint64_t bytes = (word >> (1 + 2 * kArrivalBits)) & ((uint64_t{1} << kByteBits) - 1);
  state.bytes = static_cast<int32_t>(bytes) - static_cast<int32_t>(kMostPendingBytes);
  return state;
}

void CheckMbarrierAddress(uint64_t* barrier, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (!execution.block().shared.contains(barrier, sizeof(uint64_t)) ||
      reinterpret_cast<uintptr_t>(barrier) % sizeof(uint64_t) != 0) {
    execution.Fail("a barrier must lie in shared memory, aligned to 8 bytes", place);
  }
}

MbarrierState LoadMbarrier(uint64_t* barrier, SourcePlace place) {
  CheckMbarrierAddress(barrier, place);
  uint64_t word;
  std::memcpy(&word, barrier, sizeof(word));
  if ((word & kValid) == 0) ThisExecution().Fail("the barrier was never initialised", place);
  return Unpack(word);
}

void StoreMbarrier(uint64_t* barrier, MbarrierState state) {
  ThisExecution().Progressed();
  if (state.pending == 0 && state.bytes == 0) {
    state.parity ^= 1;
    state.pending = state.expected;
  }
  const uint64_t word = Pack(state);
  std::memcpy(barrier, &word, sizeof(word));
}

// The orders of phases of both parities are apart. Otherwise a thread that leaves late would
// acquire what others released in the next phase.
void* OrderOf(uint64_t* barrier, uint32_t parity) {
  return reinterpret_cast<char*>(barrier) + parity;
}

}  // namespace

void InitMbarrier(uint64_t* barrier, uint32_t arrivals, SourcePlace place) {
  ThisExecution().RequireHopper("a barrier in shared memory", place);
  CheckMbarrierAddress(barrier, place);
  if (arrivals < 1 || arrivals > kMostArrivals) {
    ThisExecution().Fail(
        absl::StrCat("a barrier for ", arrivals, " arrivals, not in [1, ", kMostArrivals, "]"),
        place);
  }
  auto& in_use = ThisExecution().block().barriers_in_use;
  if (std::ranges::find(in_use, barrier) != in_use.end()) {
    ThisExecution().Fail("the barrier is in use; PTX allows no second mbarrier.init", place);
  }
  NoteWrite(barrier, sizeof(*barrier));
  StoreMbarrier(barrier, {.expected = arrivals, .pending = arrivals});
  const UnrecordedAccesses unrecorded;
  in_use.push_back(barrier);
  ThisExecution().block().unfenced_barriers.push_back(barrier);
}

void FenceMbarrierInit(SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kBarrierInitFence, place)) return;
  const UnrecordedAccesses unrecorded;
  execution.block().unfenced_barriers.clear();
}

void ArriveMbarrier(uint64_t* barrier, uint32_t bytes, SourcePlace place) {
  NoteRead(barrier, sizeof(*barrier));
  MbarrierState state = LoadMbarrier(barrier, place);
  if (state.pending == 0) ThisExecution().Fail("more arrivals than the barrier expects", place);
  const int64_t pending_bytes = int64_t{state.bytes} + bytes;
  if (pending_bytes > kMostPendingBytes) {
    ThisExecution().Fail(absl::StrCat("the barrier waits for ", pending_bytes, " bytes, at most ",
                                      kMostPendingBytes),
                         place);
  }
  Release(OrderOf(barrier, state.parity));
  state.bytes = static_cast<int32_t>(pending_bytes);
  --state.pending;
  StoreMbarrier(barrier, state);
}

void WaitMbarrier(uint64_t* barrier, uint32_t parity, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kMbarrierWait, place)) return;
  NoteRead(barrier, sizeof(*barrier));
  while (LoadMbarrier(barrier, place).parity == (parity & 1)) {
    execution.Poll("a wait for a barrier in shared memory", place);
  }
  Acquire(OrderOf(barrier, parity & 1));
}

void NoteCopyToMbarrier(uint64_t* barrier, SourcePlace place) {
  NoteRead(barrier, sizeof(*barrier));
  Release(OrderOf(barrier, LoadMbarrier(barrier, place).parity));
}

void CompleteMbarrierBytes(uint64_t* barrier, uint32_t bytes) {
  uint64_t word;
  std::memcpy(&word, barrier, sizeof(word));
  if ((word & kValid) == 0) return;
  MbarrierState state = Unpack(word);
  state.bytes -= static_cast<int32_t>(bytes);
  StoreMbarrier(barrier, state);
}

}  // namespace baton::gpu_emulator
