#include "tests/gpu_emulator/copy_operations.h"

#include "tests/gpu_emulator/execution.h"
#include "tests/gpu_emulator/sanitizers.h"
#include "tests/gpu_emulator/warp_operations.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kCopyBytes = 16;

void CheckFlag(const unsigned* address, SourcePlace place) {
  ThisExecution().RequireWait("an access to a flag", place);
  if (reinterpret_cast<uintptr_t>(address) % sizeof(unsigned) == 0) return;
  ThisExecution().Fail("a flag at an address that is no multiple of 4", place);
}

}  // namespace

void CopyAsync(void* shared, const void* global, bool valid, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.CheckShared(shared, kCopyBytes, "CopyAsync16", place);
  execution.CheckGlobal(global, "CopyAsync16", place);
  execution.RequireWait("CopyAsync16", place);
  if (reinterpret_cast<uintptr_t>(global) % kCopyBytes != 0) {
    execution.Fail("CopyAsync16 from an address that is no multiple of 16", place);
  }
  execution.current().copies.Issue(shared, global, kCopyBytes, valid ? kCopyBytes : 0,
                                   execution.LandsEarly());
}

void CommitAsyncCopies() { ThisExecution().current().copies.Commit(); }

void WaitAsyncCopies(uint32_t groups, SourcePlace place) {
  Execution& execution = ThisExecution();
  if (execution.Skipped(Primitive::kCopyWait, place)) return;
  execution.current().copies.Wait(groups);
}

uint32_t LoadFlag(const unsigned* address, SourcePlace place) {
  Execution& execution = ThisExecution();
  CheckFlag(address, place);
  execution.Poll("a load of a flag", place);
  uint32_t value;
  __atomic_load(address, &value, __ATOMIC_RELAXED);
  AcquireAt(address, FenceScope::kDevice);
  return value;
}

void StoreFlag(unsigned* address, uint32_t value, SourcePlace place) {
  CheckFlag(address, place);
  ThisExecution().Progressed();
  ReleaseAt(address, FenceScope::kDevice);
  __atomic_store(address, &value, __ATOMIC_RELAXED);
}

uint32_t AddToFlag(unsigned* address, uint32_t value, SourcePlace place) {
  const bool orders = !ThisExecution().Skipped(Primitive::kFence, place);
  BeforeAtomic(address, sizeof(unsigned), "AddAcquireRelease", place);
  if (orders) ReleaseAt(address, FenceScope::kDevice);
  const uint32_t before = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  if (orders) AcquireAt(address, FenceScope::kDevice);
  AfterAtomic(address);
  return before;
}

}  // namespace baton::gpu_emulator
