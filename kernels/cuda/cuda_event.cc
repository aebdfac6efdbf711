#include "kernels/cuda/cuda_event.h"

#include <utility>

namespace baton {

CudaEvent::CudaEvent(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {
  context_->Expect("cuEventCreate", context_->Enter().EventCreate(&event_, kCuEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) {
    context_->Check("cuEventDestroy", context_->Enter().EventDestroy(event_)).IgnoreError();
  }
}

bool CudaEvent::Done() const {
  if (event_ != nullptr) {
    const CuResult result = context_->Enter().EventQuery(event_);
    if (result == kCuNotReady) return false;
    context_->Expect("cuEventQuery", result);
  }
  const Calls calls = this->calls();
  return calls.returned == nullptr || calls.returned->load() >= calls.count;
}

void CudaEvent::Wait() const {
  if (event_ != nullptr) {
    context_->Expect("cuEventSynchronize", context_->Enter().EventSynchronize(event_));
  }
  const Calls calls = this->calls();
  if (calls.returned != nullptr) CudaCallThread::Wait(calls.returned, calls.count);
}

void CudaEvent::Record(CuStream stream, CudaCallThread::Returned returned, uint64_t calls) {
  if (event_ != nullptr) {
    context_->Expect("cuEventRecord", context_->Enter().EventRecord(event_, stream));
  }
  const std::lock_guard lock(mutex_);
  calls_ = {.returned = std::move(returned), .count = calls};
}

}  // namespace baton
