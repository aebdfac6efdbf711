#include "tests/gpu_emulator/shared_buffer.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

constexpr size_t kSharedAlignment = 1024;
#ifdef BATON_EMULATOR_ASAN
constexpr size_t kMargin = 0;
#else
constexpr size_t kMargin = kSharedAlignment;
#endif
constexpr std::byte kMarginByte{0xa5};
constexpr std::byte kPoison[] = {std::byte{0xff}, std::byte{0x7f}};

}  // namespace

void SharedBuffer::Start(uint32_t bytes) {
  const UnrecordedAccesses unrecorded;
  // ThreadSanitizer knows that blocks do not share this memory only if each has memory of its own.
  if (memory_ == nullptr || kRaceChecked || bytes != bytes_) {
    memory_.reset();
    void* memory = nullptr;
    CHECK_EQ(posix_memalign(&memory, kSharedAlignment, 2 * kMargin + bytes), 0);
    memory_.reset(static_cast<std::byte*>(memory));
    data_ = memory_.get() + kMargin;
    bytes_ = bytes;
    std::fill_n(memory_.get(), kMargin, kMarginByte);
    std::fill_n(data_ + bytes_, kMargin, kMarginByte);
  }
  for (uint32_t i = 0; i < bytes; ++i) data_[i] = kPoison[i % 2];
  async_view_.clear();
}

void SharedBuffer::MakeAsyncView() {
  if (!async_view_.empty()) return;
  async_view_.resize(bytes_);
  for (uint32_t i = 0; i < bytes_; ++i) async_view_[i] = kPoison[i % 2];
}

void SharedBuffer::FenceAsyncProxy() {
  const UnrecordedAccesses unrecorded;
  async_view_.assign(data_, data_ + bytes_);
}

void SharedBuffer::StoreAsync(std::byte* to, const void* from, size_t size) {
  const UnrecordedAccesses unrecorded;
  MakeAsyncView();
  std::memcpy(to, from, size);
  std::memcpy(async_view_.data() + (to - data_), from, size);
}

bool SharedBuffer::AsyncProxySees(const void* address, size_t size) {
  const UnrecordedAccesses unrecorded;
  MakeAsyncView();
  const auto* first = static_cast<const std::byte*>(address);
  return std::memcmp(first, async_view_.data() + (first - data_), size) == 0;
}

bool SharedBuffer::End() const {
  const UnrecordedAccesses unrecorded;
  const auto untouched = [](const std::byte* margin) {
    return std::all_of(margin, margin + kMargin, [](std::byte b) { return b == kMarginByte; });
  };
  return untouched(data_ - kMargin) && untouched(data_ + bytes_);
}

}  // namespace baton::gpu_emulator
