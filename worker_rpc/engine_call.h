// The engine's side of one call: lets a cancellation reach the engine whenever it comes, also
// before the engine has named the request.
//
// Thread safety: every function, from any thread.
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
