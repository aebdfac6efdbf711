// List of workers whose registration the router refused lately. An operator looks here when a
// worker is missing.
//
// Heartbeats are untrusted. The number of entries and the length of their texts are limited, and
// the oldest entry is dropped first.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/strong_int.h"

namespace baton {

class RefusedWorkers {
 public:
  static constexpr size_t kMost = 64;
  static constexpr int64_t kLateUs = 5'000'000;  // several heartbeats
  struct Refusal {
    std::string worker_id;
    std::string address;
    std::string reason;
    int64_t heard_ms = 0;  // milliseconds since its last heartbeat
  };

  // `clock` must outlive this.
  explicit RefusedWorkers(const Clock* clock) : clock_(clock) {}

  // Records a refusal. Returns true if it is new: this incarnation was not refused lately, or was
  // refused for another reason.
  bool Put(std::string_view worker_id, Epoch epoch, std::string_view address,
           std::string_view reason);
  // Removes the incarnation, because it was accepted.
  void Remove(std::string_view worker_id, Epoch epoch);
  // Returns the recent refusals, in the order of their first occurrence.
  std::vector<Refusal> Late() const;

 private:
  struct Entry {
    Refusal refusal;
    Epoch epoch{0};
    int64_t heard_us = 0;
  };
  void ForgetOld();
  std::vector<Entry>::iterator Find(std::string_view worker_id, Epoch epoch);

  const Clock* const clock_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace baton
