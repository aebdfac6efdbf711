// Shared code of the tests of indexes beyond 2^31: a reservation of which few pages are touched,
// and the instruction sets that read and write there.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/kernels/fast_kernels.h"

namespace baton {

inline constexpr int64_t kTwoTo31 = int64_t{1} << 31;

// Includes the plain one: its result near the beginning of buffers is the expected one.
inline auto AllInstructionSets() { return testing::ValuesIn(kInstructionSets); }

// Zeros in a reservation. A page costs memory only after it is touched.
template <typename Value>
class Sparse {
 public:
  explicit Sparse(int64_t count) : bytes_(static_cast<size_t>(count) * sizeof(Value)) {
    void* const region = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return;
    madvise(region, bytes_, MADV_NOHUGEPAGE);
    data_ = static_cast<Value*>(region);
  }
  ~Sparse() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  bool ok() const { return data_ != nullptr; }
  Value* data() const { return data_; }
  Value& operator[](int64_t at) const { return data_[at]; }
  void Put(int64_t at, const std::vector<Value>& values) {
    std::copy(values.begin(), values.end(), data_ + at);
  }
  std::vector<Value> Get(int64_t at, int64_t count) const {
    return std::vector<Value>(data_ + at, data_ + at + count);
  }

 private:
  const size_t bytes_;
  Value* data_ = nullptr;
};

}  // namespace baton
