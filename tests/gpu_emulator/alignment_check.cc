// Accesses of kernels at addresses that their type does not allow. A GPU traps there; an x86-64
// processor mostly does not.
//
// The kernel files are compiled with -fsanitize=alignment, which checks each access and calls the
// function below. A build with UndefinedBehaviorSanitizer has that sanitizer's own function. In a
// build with ThreadSanitizer the accesses are not checked.
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/execution.h"

#ifdef BATON_EMULATOR_CHECKS_ALIGNMENT

namespace baton::gpu_emulator {
namespace {

// As gcc and clang lay it out (TypeMismatchData in compiler-rt's ubsan_handlers.h).
struct CheckedAccess {
  struct {
    const char* file;
    uint32_t line;
    uint32_t column;
  } place;
  const void* type;
  uint8_t log_alignment;
  uint8_t kind;
};

}  // namespace
}  // namespace baton::gpu_emulator

// The exception passes frames that are compiled as if this call did not throw. This is safe as long
// as kernels have no destructors.
extern "C" __attribute__((visibility("default"))) void __ubsan_handle_type_mismatch_v1_abort(
    const baton::gpu_emulator::CheckedAccess* access, uintptr_t address) {
  baton::gpu_emulator::ThisExecution().Fail(
      absl::StrCat("an access at ", access->place.file, ":", access->place.line, " to address ",
                   absl::Hex(address), ", which is no multiple of ", 1 << access->log_alignment),
      {});
}

#endif
