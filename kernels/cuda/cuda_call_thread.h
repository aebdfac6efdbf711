// Thread of a CUDA stream that calls functions of the host in stream order.
//
// Push records a marker event behind the work enqueued so far. The thread waits for the marker,
// then calls the function. Later work of the stream does not wait for the function.
// cuLaunchHostFunc is not used for two reasons: it would make the device wait for the host, and it
// would call nothing after a fault. The thread waits by spinning in the driver, because sleeping
// would add tens of microseconds to each step.
//
// Thread safety: Push belongs to the stream's owner. The counter is safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/cuda/cuda_context.h"

namespace baton {

class CudaCallThread {
 public:
  // Number of functions that have returned. It may outlive the thread.
  using Returned = std::shared_ptr<const std::atomic<uint64_t>>;

  explicit CudaCallThread(std::shared_ptr<CudaContext> context);
  // Calls all functions that were pushed before, then ends the thread.
  ~CudaCallThread();
  CudaCallThread(const CudaCallThread&) = delete;
  CudaCallThread& operator=(const CudaCallThread&) = delete;

  // Calls `function` when everything enqueued on `stream` has run, or the device has failed.
  void Push(CuStream stream, std::function<void()> function);
  uint64_t pushed() const { return pushed_; }
  const Returned& returned() const { return returned_; }
  // Blocks until `count` functions have returned.
  static void Wait(const Returned& returned, uint64_t count);

 private:
  struct Task {
    CuEvent marker = nullptr;  // null: no marker could be made, because the device has failed
    std::function<void()> function;
  };

  CuEvent TakeMarker();
  void Loop();

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<std::atomic<uint64_t>> counter_ =
      std::make_shared<std::atomic<uint64_t>>(0);
  const Returned returned_ = counter_;
  uint64_t pushed_ = 0;

  std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_:
  std::deque<Task> tasks_;
  std::vector<CuEvent> free_markers_;
  bool stopping_ = false;
  std::thread thread_;  // last member: the thread uses all of the above
};

}  // namespace baton
