// Clocks. Pure code receives a Clock and never asks the system for the time.
//
// Thread safety: SystemClock is safe from any thread; ManualClock belongs to one.
#pragma once

#include <chrono>
#include <cstdint>

namespace baton {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns microseconds on a monotonic scale with an arbitrary start.
  virtual int64_t NowUs() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t NowUs() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Clock for tests and the simulation. It stands still until AdvanceUs() moves it.
class ManualClock final : public Clock {
 public:
  int64_t NowUs() const override { return now_us_; }
  void AdvanceUs(int64_t delta_us) { now_us_ += delta_us; }

 private:
  int64_t now_us_ = 1'000'000;
};

}  // namespace baton
