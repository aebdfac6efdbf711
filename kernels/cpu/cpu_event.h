// Event of an asynchronous CPU device. It counts its records and remembers the latest record that
// the stream's thread has passed.
//
// Thread safety: safe from any thread. An event may be destroyed before its record has run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "kernels/device.h"

namespace baton {

class CpuEvent final : public Event {
 public:
  bool Done() const override;
  void Wait() const override;

  // Begins a record. Returns a function that marks this record as passed. The stream's thread calls
  // it once.
  std::function<void()> Begin();

 private:
  struct State {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    uint64_t recorded = 0;
    uint64_t passed = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace baton
