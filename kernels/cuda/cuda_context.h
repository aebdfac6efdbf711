// A GPU of this process: the driver's table, the device's primary context, and its health.
//
// CUDA reports an error of a kernel or a copy in a later call, and every call after it fails too.
// So the first error that no caller can handle makes the device unusable. The context keeps this
// error. Callers ask Health() before they hand out results.
//
// Invariant: Health() is OK, or an error that never changes.
//
// Thread safety: safe from any thread. Streams, events, buffers and the device share the context,
// so it ends after all of them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_driver.h"

namespace baton {

class CudaContext {
 public:
  // Initialises the driver and opens device `index`. Unavailable: no such device. Unimplemented:
  // the device lacks a feature that Baton needs.
  static absl::StatusOr<std::shared_ptr<CudaContext>> Open(const CudaDriver& driver, int index);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  // Makes the context current on the calling thread and returns the table. Another library may have
  // made its own context current before, so each group of calls begins with Enter.
  const CudaDriver& Enter();

  // Lets kernels and copies of this GPU use all memory of `other`, by its addresses. Unimplemented:
  // the GPUs cannot reach each other.
  absl::Status ReachMemoryOf(const CudaContext& other);

  // Returns the result of `call` as a status. A fault also becomes the device's health.
  absl::Status Check(const char* call, CuResult result);
  // Returns true for success. Any error becomes the device's health. For calls whose caller cannot
  // return an error.
  bool Expect(const char* call, CuResult result);
  // Makes `error` the device's health unless there is one.
  void Fail(const absl::Status& error);
  // OK, or the first error that made the device unusable, as Internal.
  absl::Status Health() const;

  int index() const { return index_; }
  // True if the GPU reaches registered memory of the host by the host's addresses.
  bool registered_memory_has_host_pointers() const { return registered_host_pointers_ != 0; }
  int multiprocessors() const { return multiprocessors_; }
  int max_shared_bytes() const { return max_shared_bytes_; }      // of a thread block
  int compute_capability() const { return compute_capability_; }  // 90 for 9.0
  // Kernels may begin before those ahead of them in the stream have ended
  // (kernels/cuda/kernel_order.cuh). Captures need a driver of CUDA 12.3. Later GPUs are untried.
  bool early_kernels() const {
    return compute_capability_ == 90 && driver_version_ >= 12030 &&
           driver_.LaunchKernelEx != nullptr;
  }
  const std::string& name() const { return name_; }
  int driver_version() const { return driver_version_; }  // 13000 for 13.0

 private:
  CudaContext(const CudaDriver& driver, int index) : driver_(driver), index_(index) {}
  absl::Status Initialise();

  const CudaDriver driver_;
  const int index_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  std::string name_;
  int driver_version_ = 0;
  int registered_host_pointers_ = 0;
  int multiprocessors_ = 0;
  int max_shared_bytes_ = 0;
  int compute_capability_ = 0;

  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  absl::Status health_;  // guarded by mutex_
};

}  // namespace baton
