// An event of an asynchronous CPU device: counts how often it was recorded, and which record the
// stream's thread has passed.
//
// Thread safety: any thread. An event may be destroyed before its record has run.
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

  // Begins a record. The result marks it as passed; it is called once, by the stream's thread.
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
