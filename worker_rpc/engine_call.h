// Connects a gRPC call with its engine request. A cancellation reaches the engine even if it comes
// before the engine has returned the request's handle.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <mutex>
#include <optional>

#include "engine/engine_requests.h"

namespace baton {

class EngineCall {
 public:
  // `engine` must outlive this.
  explicit EngineCall(EngineRequests* engine) : engine_(engine) {}

  void Started(RequestHandle handle) {
    std::unique_lock lock(mutex_);
    handle_ = handle;
    const bool cancelled = cancelled_;
    lock.unlock();
    if (cancelled) engine_->Cancel(handle);
  }

  void Cancel() {
    std::unique_lock lock(mutex_);
    cancelled_ = true;
    const std::optional<RequestHandle> handle = handle_;
    lock.unlock();
    if (handle) engine_->Cancel(*handle);
  }

 private:
  EngineRequests* const engine_;
  std::mutex mutex_;
  std::optional<RequestHandle> handle_;
  bool cancelled_ = false;
};

}  // namespace baton
