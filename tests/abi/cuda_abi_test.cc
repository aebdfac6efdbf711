// Compares kernels/cuda/cuda_driver.h with the real cuda.h, and its function names with the
// driver's library. Built where CUDA is installed. The library is the linker's stub,
// which has every function of the driver.

#include <cuda.h>

#include <cstddef>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_driver.h"
#include "tests/abi/same_interface.h"

namespace baton {
namespace {

// cuda.h defines each name of a current version as a macro for the exported name, so the names in
// the table are those that the library exports.
#define BATON_SAME_FUNCTION(member, name) \
  static_assert(IsSameFunction<decltype(CudaDriver::member), decltype(&::name)>);
BATON_CUDA_FUNCTIONS(BATON_SAME_FUNCTION)
#undef BATON_SAME_FUNCTION

// The macro of the header names the version that the table loads.
#define BATON_TEXT_OF(name) #name
#define BATON_EXPANDED_TEXT_OF(name) BATON_TEXT_OF(name)
constexpr bool Equal(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuMemAlloc), "cuMemAlloc_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuMemFree), "cuMemFree_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuMemGetInfo), "cuMemGetInfo_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuStreamDestroy), "cuStreamDestroy_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuEventDestroy), "cuEventDestroy_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuStreamBeginCapture), "cuStreamBeginCapture_v2"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuGraphInstantiate), "cuGraphInstantiateWithFlags"));
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuDevicePrimaryCtxRelease),
                    "cuDevicePrimaryCtxRelease_v2"));

#define BATON_SAME_VALUE(ours, real) static_assert(static_cast<int>(ours) == static_cast<int>(real))
BATON_SAME_VALUE(kCuSuccess, CUDA_SUCCESS);
BATON_SAME_VALUE(kCuInvalidValue, CUDA_ERROR_INVALID_VALUE);
BATON_SAME_VALUE(kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
BATON_SAME_VALUE(kCuDeinitialized, CUDA_ERROR_DEINITIALIZED);
BATON_SAME_VALUE(kCuNoDevice, CUDA_ERROR_NO_DEVICE);
BATON_SAME_VALUE(kCuInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
BATON_SAME_VALUE(kCuInvalidImage, CUDA_ERROR_INVALID_IMAGE);
BATON_SAME_VALUE(kCuInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
BATON_SAME_VALUE(kCuNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
BATON_SAME_VALUE(kCuEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
BATON_SAME_VALUE(kCuNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
BATON_SAME_VALUE(kCuContained, CUDA_ERROR_CONTAINED);
BATON_SAME_VALUE(kCuInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
BATON_SAME_VALUE(kCuNotFound, CUDA_ERROR_NOT_FOUND);
BATON_SAME_VALUE(kCuNotReady, CUDA_ERROR_NOT_READY);
BATON_SAME_VALUE(kCuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
BATON_SAME_VALUE(kCuLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
BATON_SAME_VALUE(kCuLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
BATON_SAME_VALUE(kCuAssert, CUDA_ERROR_ASSERT);
BATON_SAME_VALUE(kCuHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
BATON_SAME_VALUE(kCuIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
BATON_SAME_VALUE(kCuMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
BATON_SAME_VALUE(kCuInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
BATON_SAME_VALUE(kCuInvalidProgramCounter, CUDA_ERROR_INVALID_PC);
BATON_SAME_VALUE(kCuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
BATON_SAME_VALUE(kCuStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
BATON_SAME_VALUE(kCuStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
BATON_SAME_VALUE(kCuStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
BATON_SAME_VALUE(kCuUnknown, CUDA_ERROR_UNKNOWN);

BATON_SAME_VALUE(kCuMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
BATON_SAME_VALUE(kCuUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
BATON_SAME_VALUE(kCuComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
BATON_SAME_VALUE(kCuComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
BATON_SAME_VALUE(kCuMaxSharedMemoryPerBlockOptin,
                 CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
BATON_SAME_VALUE(kCuVirtualMemoryManagementSupported,
                 CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
BATON_SAME_VALUE(kCuMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
BATON_SAME_VALUE(kCuCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
BATON_SAME_VALUE(kCuAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
BATON_SAME_VALUE(kCuLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
BATON_SAME_VALUE(kCuHandleNone, CU_MEM_HANDLE_TYPE_NONE);
BATON_SAME_VALUE(kCuAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
BATON_SAME_VALUE(kCuGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
BATON_SAME_VALUE(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING);
BATON_SAME_VALUE(kCuEventDisableTiming, CU_EVENT_DISABLE_TIMING);
BATON_SAME_VALUE(kCuHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
#undef BATON_SAME_VALUE

static_assert(std::is_same_v<CuDevicePointer, CUdeviceptr> && std::is_same_v<CuDevice, CUdevice> &&
              std::is_same_v<CuMemoryHandle, CUmemGenericAllocationHandle>);
static_assert(offsetof(CuAllocationProperties, requested_handle_types) ==
                  offsetof(CUmemAllocationProp, requestedHandleTypes) &&
              offsetof(CuAllocationProperties, location) ==
                  offsetof(CUmemAllocationProp, location) &&
              offsetof(CuAllocationProperties, flags) ==
                  offsetof(CUmemAllocationProp, allocFlags) &&
              sizeof(CuAllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(CuLocation, id) == offsetof(CUmemLocation, id) &&
              sizeof(CuLocation) == sizeof(CUmemLocation));
static_assert(offsetof(CuAccess, flags) == offsetof(CUmemAccessDesc, flags) &&
              sizeof(CuAccess) == sizeof(CUmemAccessDesc));

TEST(CudaAbi, TheDriversLibraryHasEveryFunction) {
  const auto driver = LoadCudaDriver({BATON_CUDA_STUB_LIBRARY});
  ASSERT_TRUE(driver.ok()) << driver.status();
}

}  // namespace
}  // namespace baton
