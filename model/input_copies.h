// Collects the copies of a step's inputs from staging memory to a device, and enqueues all of them
// as one op. On a GPU, each copy of its own would take some microseconds between two steps.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/byte_run.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

class InputCopies {
 public:
  // REQUIRES: `from` is staging memory (Device::AllocateStaging) and stays unchanged until the copy
  // has run; no two destinations overlap.
  void Add(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    if (runs_.empty()) {
      to_ = static_cast<std::byte*>(to);
      from_ = static_cast<const std::byte*>(from);
    }
    runs_.push_back({Distance(from_, from), Distance(to_, to), static_cast<int64_t>(bytes)});
  }
  // Enqueues the copies as one op, and forgets them.
  void Enqueue(const Ops& ops, Stream& stream) {
    if (runs_.empty()) return;
    ops.CopyRuns(stream,
                 {.from = from_, .to = to_, .runs = runs_, .staging = true, .urgent = true});
    runs_.clear();
  }
  // The same for a device without ops: each copy by itself.
  void EnqueueEach(Stream& stream) {
    for (const ByteRun& run : runs_) {
      stream.Copy(to_ + run.to, from_ + run.from, static_cast<size_t>(run.bytes));
    }
    runs_.clear();
  }

 private:
  // Addresses of different buffers.
  static int64_t Distance(const void* from, const void* to) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) -
                                reinterpret_cast<uintptr_t>(from));
  }

  std::byte* to_ = nullptr;          // of the first copy
  const std::byte* from_ = nullptr;  // the same
  std::vector<ByteRun> runs_;        // offsets from these two
};

}  // namespace baton
