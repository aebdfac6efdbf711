#include "tests/gpu_emulator/early_kernels.h"

#include <signal.h>
#include <ucontext.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/gpu_emulator/execution.h"

namespace baton::gpu_emulator {
namespace {

constexpr uint32_t kPrefetchAlignment = 16;

struct sigaction previous_action;
thread_local constinit uintptr_t early_address = 0;

// The kernel seems to call this function where it touched memory. The exception passes frames that
// are compiled as if their loads and stores did not throw. This is safe as long as kernels have no
// destructors.
[[gnu::force_align_arg_pointer, noreturn]] void FailEarlyAccess() {
  ThisExecution().Fail(absl::StrCat("an access to device memory at ", absl::Hex(early_address),
                                    " before WaitForEarlierKernels"),
                       {});
}

// Does with a fault what was done before CatchEarlyAccesses. Another copy of the emulator may be in
// the process.
void ActAsBefore(int signal, siginfo_t* fault, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, fault, context);
  } else {
    CHECK(sigaction(signal, &previous_action, nullptr) == 0);  // the fault happens again
  }
}

// An access to closed memory goes on in FailEarlyAccess.
void OnFault(int signal, siginfo_t* fault, void* context) {
  if (!MemoryIsClosed()) return ActAsBefore(signal, fault, context);
  early_address = reinterpret_cast<uintptr_t>(fault->si_addr);
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  // The unwinder looks at the byte before a return address.
  registers[REG_RSP] -= sizeof(greg_t);
  *reinterpret_cast<greg_t*>(registers[REG_RSP]) = registers[REG_RIP] + 1;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&FailEarlyAccess);
}

}  // namespace

void WaitForEarlier(SourcePlace place) { ThisExecution().WaitForEarlier(place); }

void Prefetch(const void* global, uint32_t bytes, SourcePlace place) {
  Execution& execution = ThisExecution();
  execution.CheckGlobal(global, "PrefetchConstant", place);
  if (reinterpret_cast<uintptr_t>(global) % kPrefetchAlignment == 0 && bytes != 0 &&
      bytes % kPrefetchAlignment == 0) {
    return;
  }
  execution.Fail(absl::StrCat("PrefetchConstant of ", bytes,
                              " bytes: its address and size must be multiples of 16"),
                 place);
}

void CatchEarlyAccesses() {
  static const bool caught = [] {
    struct sigaction action = {};
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, &previous_action) == 0;
  }();
  CHECK(caught);
}

}  // namespace baton::gpu_emulator
