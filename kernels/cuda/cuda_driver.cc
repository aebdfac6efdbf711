#include "kernels/cuda/cuda_driver.h"

#include "common/shared_library.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<CudaDriver> LoadCudaDriver(const std::vector<std::string>& names) {
  SharedLibrary library(names);
  CudaDriver driver;
#define BATON_FIND(member, name) library.Find(#name, driver.member);
  BATON_CUDA_FUNCTIONS(BATON_FIND)
#undef BATON_FIND
#define BATON_FIND_NEWER(member, name) library.FindIfPresent(#name, driver.member);
  BATON_CUDA_NEWER_FUNCTIONS(BATON_FIND_NEWER)
#undef BATON_FIND_NEWER
  RETURN_IF_ERROR(library.status());
  return driver;
}

absl::Status CudaErrorOf(const CudaDriver& driver, std::string_view call, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName(result, &name) != kCuSuccess) name = nullptr;
  if (driver.GetErrorString(result, &text) != kCuSuccess) text = nullptr;
  const std::string message =
      StrCat(call, ": ", text == nullptr ? "unknown error" : text, " (",
             name == nullptr ? "no name" : name, ", ", static_cast<int>(result), ")");
  switch (result) {
    case kCuOutOfMemory:
      return absl::ResourceExhaustedError(message);
    case kCuNoDevice:
    case kCuInvalidDevice:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

bool IsCudaFault(CuResult result) {
  switch (result) {
    case kCuSuccess:
    case kCuInvalidValue:
    case kCuOutOfMemory:
    case kCuInvalidDevice:
    case kCuInvalidImage:
    case kCuMapFailed:
    case kCuUnmapFailed:
    case kCuNoBinaryForGpu:
    case kCuPeerAccessUnsupported:
    case kCuInvalidPtx:
    case kCuNoJitCompiler:
    case kCuUnsupportedPtxVersion:
    case kCuJitDisabled:
    case kCuInvalidHandle:
    case kCuNotFound:
    case kCuNotReady:
    case kCuLaunchOutOfResources:
    case kCuPeerAccessAlreadyEnabled:
    case kCuNotPermitted:
    case kCuNotSupported:
    case kCuStreamCaptureUnsupported:
    case kCuStreamCaptureInvalidated:
    case kCuStreamCaptureUnmatched:
      return false;
    default:
      return true;
  }
}

}  // namespace baton
