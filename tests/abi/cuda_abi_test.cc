// Compares kernels/cuda/cuda_driver.h with the real cuda.h, and its function names with the
// driver's library. Built where CUDA is installed. The library is the linker's stub,
// which has every function of the driver.

#include <cuda.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
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
BATON_CUDA_NEWER_FUNCTIONS(BATON_SAME_FUNCTION)
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
static_assert(Equal(BATON_EXPANDED_TEXT_OF(cuMemHostRegister), "cuMemHostRegister_v2"));
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
BATON_SAME_VALUE(kCuNoDevice, CUDA_ERROR_NO_DEVICE);
BATON_SAME_VALUE(kCuInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
BATON_SAME_VALUE(kCuInvalidImage, CUDA_ERROR_INVALID_IMAGE);
BATON_SAME_VALUE(kCuInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
BATON_SAME_VALUE(kCuMapFailed, CUDA_ERROR_MAP_FAILED);
BATON_SAME_VALUE(kCuUnmapFailed, CUDA_ERROR_UNMAP_FAILED);
BATON_SAME_VALUE(kCuNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
BATON_SAME_VALUE(kCuInvalidPtx, CUDA_ERROR_INVALID_PTX);
BATON_SAME_VALUE(kCuPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
BATON_SAME_VALUE(kCuPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
BATON_SAME_VALUE(kCuNoJitCompiler, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
BATON_SAME_VALUE(kCuUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
BATON_SAME_VALUE(kCuJitDisabled, CUDA_ERROR_JIT_COMPILATION_DISABLED);
BATON_SAME_VALUE(kCuInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
BATON_SAME_VALUE(kCuNotFound, CUDA_ERROR_NOT_FOUND);
BATON_SAME_VALUE(kCuNotReady, CUDA_ERROR_NOT_READY);
BATON_SAME_VALUE(kCuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
BATON_SAME_VALUE(kCuLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
BATON_SAME_VALUE(kCuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
BATON_SAME_VALUE(kCuNotPermitted, CUDA_ERROR_NOT_PERMITTED);
BATON_SAME_VALUE(kCuNotSupported, CUDA_ERROR_NOT_SUPPORTED);
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
BATON_SAME_VALUE(kCuHostPointersForRegisteredMemory,
                 CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
BATON_SAME_VALUE(kCuVirtualMemoryManagementSupported,
                 CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
BATON_SAME_VALUE(kCuMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
BATON_SAME_VALUE(kCuSharedCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
BATON_SAME_VALUE(kCuCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
BATON_SAME_VALUE(kCuAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
BATON_SAME_VALUE(kCuLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
BATON_SAME_VALUE(kCuHandleNone, CU_MEM_HANDLE_TYPE_NONE);
BATON_SAME_VALUE(kCuAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
BATON_SAME_VALUE(kCuGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
BATON_SAME_VALUE(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING);
BATON_SAME_VALUE(kCuEventDisableTiming, CU_EVENT_DISABLE_TIMING);
BATON_SAME_VALUE(kCuHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
BATON_SAME_VALUE(kCuLaunchProgrammaticSerialization,
                 CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
BATON_SAME_VALUE(kCuHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
BATON_SAME_VALUE(kCuHostRegisterMapped, CU_MEMHOSTREGISTER_DEVICEMAP);
BATON_SAME_VALUE(kCuTileUint16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
BATON_SAME_VALUE(kCuTileInterleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE);
BATON_SAME_VALUE(kCuTilePromotion256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
BATON_SAME_VALUE(kCuTileFillZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
BATON_SAME_VALUE(SharedSwizzle::kNone, CU_TENSOR_MAP_SWIZZLE_NONE);
BATON_SAME_VALUE(SharedSwizzle::k32Bytes, CU_TENSOR_MAP_SWIZZLE_32B);
BATON_SAME_VALUE(SharedSwizzle::k64Bytes, CU_TENSOR_MAP_SWIZZLE_64B);
BATON_SAME_VALUE(SharedSwizzle::k128Bytes, CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) >= alignof(CUtensorMap));
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
static_assert(offsetof(CuLaunchAttribute, allowed) == offsetof(CUlaunchAttribute, value) &&
              offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed) == 0 &&
              sizeof(CuLaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(CuLaunchConfig, grid) == offsetof(CUlaunchConfig, gridDimX) &&
              offsetof(CuLaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX) &&
              offsetof(CuLaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes) &&
              offsetof(CuLaunchConfig, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(CuLaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs) &&
              offsetof(CuLaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs) &&
              sizeof(CuLaunchConfig) == sizeof(CUlaunchConfig));

// An error code of cuda.h with its comment.
struct ErrorCode {
  std::string name;
  std::string comment;
  CuResult value = kCuSuccess;
};

std::vector<ErrorCode> ErrorCodesOfTheHeader() {
  std::ifstream file(BATON_CUDA_HEADER);
  std::stringstream contents;
  contents << file.rdbuf();
  const std::string text = contents.str();
  const size_t begin = text.find("typedef enum cudaError_enum");
  const size_t end = text.find("} CUresult;", begin);
  CHECK(begin != std::string::npos && end != std::string::npos) << BATON_CUDA_HEADER;
  std::vector<ErrorCode> codes;
  ErrorCode code;
  std::istringstream lines(text.substr(begin, end - begin));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string equals;
    int value = 0;
    if (words >> code.name >> equals >> value && equals == "=") {
      code.value = static_cast<CuResult>(value);
      codes.push_back(std::exchange(code, {}));
    } else {
      std::istringstream again(line);
      for (std::string word; again >> word;) {
        if (word != "*") code.comment += word + " ";
      }
    }
  }
  return codes;
}

TEST(CudaAbi, OnlyErrorsThatLeaveTheContextUsableAreNoFaults) {
  const std::set<std::string> harmless = {"CUDA_SUCCESS",
                                          "CUDA_ERROR_INVALID_VALUE",
                                          "CUDA_ERROR_OUT_OF_MEMORY",
                                          "CUDA_ERROR_INVALID_DEVICE",
                                          "CUDA_ERROR_INVALID_IMAGE",
                                          "CUDA_ERROR_MAP_FAILED",
                                          "CUDA_ERROR_UNMAP_FAILED",
                                          "CUDA_ERROR_NO_BINARY_FOR_GPU",
                                          "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
                                          "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
                                          "CUDA_ERROR_INVALID_PTX",
                                          "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
                                          "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
                                          "CUDA_ERROR_JIT_COMPILATION_DISABLED",
                                          "CUDA_ERROR_INVALID_HANDLE",
                                          "CUDA_ERROR_NOT_FOUND",
                                          "CUDA_ERROR_NOT_READY",
                                          "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                                          "CUDA_ERROR_NOT_PERMITTED",
                                          "CUDA_ERROR_NOT_SUPPORTED",
                                          "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                                          "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
                                          "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"};
  const std::vector<ErrorCode> codes = ErrorCodesOfTheHeader();
  ASSERT_GT(codes.size(), 90u);
  int fatal = 0;
  size_t no_faults = 0;
  for (const ErrorCode& code : codes) {
    no_faults += IsCudaFault(code.value) ? 0 : 1;
    EXPECT_EQ(IsCudaFault(code.value), !harmless.contains(code.name)) << code.name;
    if (code.comment.find("terminated and relaunched") == std::string::npos &&
        code.comment.find("cannot be used anymore") == std::string::npos) {
      continue;
    }
    ++fatal;
    EXPECT_TRUE(IsCudaFault(code.value)) << code.name << ": " << code.comment;
  }
  EXPECT_EQ(no_faults, harmless.size()) << "a name of the list is not in the header";
  EXPECT_GE(fatal, 12);
  EXPECT_TRUE(IsCudaFault(static_cast<CuResult>(998))) << "a code that a later driver adds";
}

TEST(CudaAbi, TheDriversLibraryHasEveryFunction) {
  const auto driver = LoadCudaDriver({BATON_CUDA_STUB_LIBRARY});
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_NE(driver->LaunchKernelEx, nullptr);
}

}  // namespace
}  // namespace baton
