#include "kernels/cuda/cuda_context.h"

#include <array>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<std::shared_ptr<CudaContext>> CudaContext::Open(const CudaDriver& driver,
                                                               int index) {
  std::shared_ptr<CudaContext> context(new CudaContext(driver, index));
  RETURN_IF_ERROR(context->Initialise());
  return context;
}

absl::Status CudaContext::Initialise() {
  const auto check = [this](const char* call, CuResult result) {
    return result == kCuSuccess ? absl::OkStatus() : CudaErrorOf(driver_, call, result);
  };
  if (const absl::Status ready = check("cuInit", driver_.Init(0)); !ready.ok()) {
    return absl::UnavailableError(StrCat("the CUDA driver cannot start: ", ready.message()));
  }
  RETURN_IF_ERROR(check("cuDriverGetVersion", driver_.DriverGetVersion(&driver_version_)));
  int devices = 0;
  RETURN_IF_ERROR(check("cuDeviceGetCount", driver_.DeviceGetCount(&devices)));
  if (index_ < 0 || index_ >= devices) {
    return absl::UnavailableError(
        StrCat("there is no CUDA device ", index_, "; this machine has ", devices));
  }
  RETURN_IF_ERROR(check("cuDeviceGet", driver_.DeviceGet(&device_, index_)));
  std::array<char, 256> name{};
  RETURN_IF_ERROR(
      check("cuDeviceGetName",
            driver_.DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device_)));
  name_ = name.data();
  int major = 0;
  int minor = 0;
  int unified = 0;
  int virtual_memory = 0;
  for (const auto& [attribute, value] :
       {std::pair{kCuMultiprocessorCount, &multiprocessors_},
        {kCuMaxSharedMemoryPerBlockOptin, &max_shared_bytes_},
        {kCuComputeCapabilityMajor, &major},
        {kCuComputeCapabilityMinor, &minor},
        {kCuUnifiedAddressing, &unified},
        {kCuHostPointersForRegisteredMemory, &registered_host_pointers_},
        {kCuVirtualMemoryManagementSupported, &virtual_memory}}) {
    RETURN_IF_ERROR(
        check("cuDeviceGetAttribute", driver_.DeviceGetAttribute(value, attribute, device_)));
  }
  compute_capability_ = 10 * major + minor;
  if (unified == 0 || virtual_memory == 0) {
    return absl::UnimplementedError(
        StrCat("CUDA device ", index_, " (", name_, ") lacks ",
               unified == 0 ? "unified addressing" : "virtual memory management"));
  }
  return check("cuDevicePrimaryCtxRetain", driver_.DevicePrimaryCtxRetain(&context_, device_));
}

// At the end of a process, the driver may have ended before this object. Its error is harmless.
CudaContext::~CudaContext() {
  if (context_ != nullptr) driver_.DevicePrimaryCtxRelease(device_);
}

const CudaDriver& CudaContext::Enter() {
  Expect("cuCtxSetCurrent", driver_.CtxSetCurrent(context_));
  return driver_;
}

absl::Status CudaContext::ReachMemoryOf(const CudaContext& other) {
  if (index_ == other.index_) return absl::OkStatus();
  const CudaDriver& driver = Enter();
  int can = 0;
  RETURN_IF_ERROR(
      Check("cuDeviceCanAccessPeer", driver.DeviceCanAccessPeer(&can, device_, other.device_)));
  if (can == 0) {
    return absl::UnimplementedError(
        StrCat("CUDA device ", index_, " cannot reach the memory of device ", other.index_));
  }
  const CuResult enabled = driver.CtxEnablePeerAccess(other.context_, 0);
  if (enabled == kCuPeerAccessAlreadyEnabled) return absl::OkStatus();
  return Check("cuCtxEnablePeerAccess", enabled);
}

absl::Status CudaContext::Check(const char* call, CuResult result) {
  if (result == kCuSuccess) return absl::OkStatus();
  absl::Status error = CudaErrorOf(driver_, call, result);
  if (IsCudaFault(result)) Fail(error);
  return error;
}

bool CudaContext::Expect(const char* call, CuResult result) {
  if (result == kCuSuccess) return true;
  Fail(CudaErrorOf(driver_, call, result));
  return false;
}

void CudaContext::Fail(const absl::Status& error) {
  CHECK(!error.ok());
  const std::lock_guard lock(mutex_);
  if (!health_.ok()) return;
  health_ = absl::InternalError(StrCat("CUDA device ", index_, " failed: ", error.message()));
  LOG(ERROR) << health_.message();
  failed_.store(true, std::memory_order_release);
}

absl::Status CudaContext::Health() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  return health_;
}

}  // namespace baton
