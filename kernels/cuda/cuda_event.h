// Event of a CUDA device. It is done when all work that its stream had enqueued before the record
// has run, and the host functions among it have returned. After a fault it is done at once.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/cuda/cuda_call_thread.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/device.h"

namespace baton {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<CudaContext> context);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool Done() const override;
  void Wait() const override;

  // Records the event on `stream`, behind `calls` host functions. `returned` counts those that have
  // returned; it is null if there are none.
  void Record(CuStream stream, CudaCallThread::Returned returned, uint64_t calls);

 private:
  struct Calls {
    CudaCallThread::Returned returned;
    uint64_t count = 0;
  };
  Calls calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  const std::shared_ptr<CudaContext> context_;
  CuEvent event_ = nullptr;  // null: it could not be made, because the device has failed
  mutable std::mutex mutex_;
  Calls calls_;  // guarded by mutex_
};

}  // namespace baton
