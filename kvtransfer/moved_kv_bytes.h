// Counts the payload of KV that a transport has moved, by medium.
//
// Thread safety: every function, from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace baton {

enum class KvMedium : uint8_t { kLoopback, kShm, kTcp, kNccl };
inline constexpr size_t kKvMedia = 4;

class MovedKvBytes {
 public:
  struct Totals {
    std::array<int64_t, kKvMedia> received = {};  // landed and verified
    std::array<int64_t, kKvMedia> sent = {};
  };

  void Received(KvMedium medium, int64_t bytes) { Add(received_, medium, bytes); }
  void Sent(KvMedium medium, int64_t bytes) { Add(sent_, medium, bytes); }

  Totals Read() const {
    Totals totals;
    for (size_t i = 0; i < kKvMedia; ++i) {
      totals.received[i] = received_[i].load(std::memory_order_relaxed);
      totals.sent[i] = sent_[i].load(std::memory_order_relaxed);
    }
    return totals;
  }

 private:
  using Counts = std::array<std::atomic<int64_t>, kKvMedia>;
  static void Add(Counts& counts, KvMedium medium, int64_t bytes) {
    counts[static_cast<size_t>(medium)].fetch_add(bytes, std::memory_order_relaxed);
  }

  Counts received_ = {};
  Counts sent_ = {};
};

}  // namespace baton
