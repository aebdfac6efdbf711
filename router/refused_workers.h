// Workers that ask to be taken and are not: what an operator looks for when one is missing.
//
// Heartbeats come from strangers: so many are kept, so much of each, and the oldest goes first.
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
    int64_t heard_ms = 0;  // since it last asked
  };

  // `clock` must outlive this.
  explicit RefusedWorkers(const Clock* clock) : clock_(clock) {}

  // True when that is news: the incarnation was not refused of late, or for another reason.
  bool Put(std::string_view worker_id, Epoch epoch, std::string_view address,
           std::string_view reason);
  // It was taken.
  void Remove(std::string_view worker_id, Epoch epoch);
  // Those of late, who was first refused first.
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
