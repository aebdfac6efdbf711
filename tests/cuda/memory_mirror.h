// Lets kernels of a CUDA device work on memory of the host: the heap and the stack of the calling
// thread are copied to the device before a launch, and the bytes that the kernel changed are copied
// back after it. Tests of ops use it, because they keep their operands in vectors.
//
// Pointers are replaced in the parameters of the launch only. A kernel cannot follow pointers that
// it finds in memory, and static data has no copy.
//
// MemoryMirror::PrepareHeap must run before the first test. The mirror then opens after the device.
// From then on, malloc takes all memory from one range of addresses, which tests use for operands.
// The large buffers of the device's driver lie elsewhere, because they are older.
//
// Thread safety: belongs to one thread. Other threads may use the heap during a launch, except for
// bytes that the kernel writes.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "kernels/device.h"

namespace baton {

class MemoryMirror {
 public:
  static void PrepareHeap() {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 64 << 10);  // without this, the threshold grows
  }

  explicit MemoryMirror(Device& device) : heap_(device, "[heap]"), stack_(device, "[stack]") {
    mallopt(M_MMAP_MAX, 0);
  }

  // Replaces pointers into the mirrored ranges by pointers to their copies. `words` are the aligned
  // words of the parameters.
  void ReplacePointers(std::vector<uint64_t>& words) const {
    for (uint64_t& word : words) {
      for (const Range* range : {&heap_, &stack_}) range->Replace(word);
    }
  }
  // Where the copy of an address of the heap lies, in every launch.
  const void* OnDevice(const void* heap_address) const { return heap_.OnDevice(heap_address); }
  // Both wait until the copies are done. The stack above `frame` is copied.
  void ToDevice(Stream& stream, const void* frame) {
    heap_.ToDevice(stream, heap_.begin(), reinterpret_cast<uintptr_t>(sbrk(0)));
    stack_.ToDevice(stream, reinterpret_cast<uintptr_t>(frame) / kChunk * kChunk, stack_.end());
  }
  void FromDevice(Stream& stream) {
    heap_.FromDevice(stream);
    stack_.FromDevice(stream);
  }

 private:
  static constexpr size_t kChunk = 256;                  // bytes that are compared at a time
  static constexpr size_t kMost = size_t{1} << 30;       // of the heap; CHECKed
  static constexpr size_t kMostStack = size_t{3} << 19;  // 1.5 MiB

  class Range {
   public:
    Range(Device& device, std::string_view mapping) : device_(device) {
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find(mapping) == std::string::npos) continue;
        char dash = 0;
        std::istringstream(line) >> std::hex >> begin_ >> dash >> end_;
      }
      CHECK(end_ != 0) << mapping << " is not in /proc/self/maps";
      // The emulated device has less memory than a GPU.
      const size_t most = std::min(kMost, static_cast<size_t>(device.Memory().available) / 4);
      auto made = device.Allocate(mapping == "[heap]" ? most : kMostStack, "test");
      CHECK(made.ok()) << made.status();
      copy_ = *std::move(made);
    }
    uintptr_t begin() const { return begin_; }
    uintptr_t end() const { return end_; }
    // REQUIRES: all copies begin at begin().
    const void* OnDevice(const void* address) const {
      const size_t offset = reinterpret_cast<uintptr_t>(address) - begin_;
      CHECK(offset < copy_->size()) << "no address of the mirrored range";
      return copy_->data() + offset;
    }

    void Replace(uint64_t& word) const {
      if (word < first_ || word > first_ + bytes_) return;
      word = word - first_ + reinterpret_cast<uintptr_t>(copy_->data());
    }
    void ToDevice(Stream& stream, uintptr_t begin, uintptr_t end) {
      first_ = begin;
      bytes_ = end - begin;
      CHECK(bytes_ <= copy_->size()) << "the test uses more than " << copy_->size() << " bytes";
      ReserveStaging();
      std::memcpy(before_->data(), reinterpret_cast<const void*>(first_), bytes_);
      stream.Copy(copy_->data(), before_->data(), bytes_);
      stream.Synchronize();
    }
    void FromDevice(Stream& stream) {
      stream.Copy(after_->data(), copy_->data(), bytes_);
      stream.Synchronize();
      auto* const to = reinterpret_cast<std::byte*>(first_);
      for (size_t at = 0; at < bytes_; at += kChunk) {
        const size_t end = std::min(at + kChunk, bytes_);
        if (std::memcmp(before_->data() + at, after_->data() + at, end - at) == 0) continue;
        for (size_t i = at; i < end; ++i) {
          if (before_->data()[i] != after_->data()[i]) to[i] = after_->data()[i];
        }
      }
    }

   private:
    // Pinned memory is dear, so it grows with the range.
    void ReserveStaging() {
      if (before_ != nullptr && before_->size() >= bytes_) return;
      for (auto* buffer : {&before_, &after_}) {
        auto made = device_.AllocateStaging(bytes_ + bytes_ / 2, "test");
        CHECK(made.ok()) << made.status();
        *buffer = *std::move(made);
      }
    }

    Device& device_;
    uintptr_t begin_ = 0, end_ = 0;  // when the range was made; a heap grows
    uintptr_t first_ = 0;            // of the last copy to the device
    size_t bytes_ = 0;
    std::unique_ptr<DeviceBuffer> copy_;            // on the device
    std::unique_ptr<DeviceBuffer> before_, after_;  // host: contents before and after the kernel
  };

  Range heap_, stack_;
};

}  // namespace baton
