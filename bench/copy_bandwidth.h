// Measures plain copies, the limit of a transfer between two pools in shared memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/streaming_copy.h"
#include "bench/transfer_worker.h"
#include "common/crc32c_copy.h"
#include "common/shared_page_buffer.h"

namespace baton {

// Returns bytes per second of the fastest plain copy by one thread: memcpy, or streaming stores.
// The buffers are allocated and reused as the pools of a transfer are, so the caches keep as much
// of them. The source may be smaller than the target; it is then read repeatedly. The result is
// the median of `runs` copies, after one that warms the caches.
// REQUIRES: both sizes are multiples of 64.
inline double CopyBandwidth(int64_t bytes, int64_t source_bytes, int64_t runs) {
  source_bytes = std::min(bytes, source_bytes);
  const absl::StatusOr<SharedPageBuffer> from = SharedPageBuffer::Allocate(source_bytes, "source");
  const absl::StatusOr<SharedPageBuffer> to = SharedPageBuffer::Allocate(bytes, "target");
  CHECK(from.ok() && to.ok());
  std::memset(from->data(), 1, source_bytes);
  std::memset(to->data(), 1, bytes);
  const auto median_of = [&](const auto& copy) {
    std::vector<double> seconds;
    for (int64_t i = runs; i >= 0; --i) {  // the first run only warms the caches
      const Instant start = Now();
      for (int64_t at = 0; at < bytes; at += source_bytes) {
        copy(to->data() + at,
             std::span<const std::byte>(from->data(), std::min(source_bytes, bytes - at)));
      }
      seconds.push_back(Seconds(start));
    }
    seconds.erase(seconds.begin());
    return Median(seconds);
  };
  const double plain = median_of([](std::byte* target, std::span<const std::byte> source) {
    std::memcpy(target, source.data(), source.size());
  });
  const double streaming = median_of([](std::byte* target, std::span<const std::byte> source) {
    WidestCopy(target, source);
    FinishStreaming();
  });
  return static_cast<double>(bytes) / std::min(plain, streaming);
}

}  // namespace baton
