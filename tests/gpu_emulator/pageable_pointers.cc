#include "tests/gpu_emulator/pageable_pointers.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace baton::gpu_emulator {
namespace {

// Linux maps position-independent programs, their heap, libraries and stacks here. The shadow
// memory of sanitizers lies below.
constexpr CuDevicePointer kLowest = 0x550000000000;
constexpr CuDevicePointer kHighest = 0x7fffffffffff;

bool IsReadable(CuDevicePointer address) {
  char byte = 0;
  const iovec to = {&byte, 1};
  const iovec from = {reinterpret_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

}  // namespace

std::optional<size_t> FindPageablePointer(const Kernel& kernel, const std::byte* params,
                                          const std::function<bool(CuDevicePointer)>& is_of_gpu) {
  alignas(128) std::array<std::byte, kMostParamsBytes> fields;  // as a TensorMap
  std::copy_n(params, kernel.params_bytes, fields.begin());
  if (kernel.clear_padding != nullptr) kernel.clear_padding(fields.data());
  for (size_t at = 0; at + sizeof(CuDevicePointer) <= kernel.params_bytes;
       at += sizeof(CuDevicePointer)) {
    CuDevicePointer address = 0;
    std::memcpy(&address, &fields[at], sizeof(address));
    if (address < kLowest || address > kHighest) continue;
    // The end of a buffer is an address that a kernel may get and does not follow.
    if (is_of_gpu(address) || is_of_gpu(address - 1) || !IsReadable(address)) continue;
    return at;
  }
  return std::nullopt;
}

}  // namespace baton::gpu_emulator
