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
    case kCuEccUncorrectable:
    case kCuNvlinkUncorrectable:
    case kCuContained:
    case kCuIllegalAddress:
    case kCuLaunchTimeout:
    case kCuAssert:
    case kCuHardwareStackError:
    case kCuIllegalInstruction:
    case kCuMisalignedAddress:
    case kCuInvalidAddressSpace:
    case kCuInvalidProgramCounter:
    case kCuLaunchFailed:
    case kCuUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace baton
