// The CUDA driver as a table of functions, filled at run time. No binary links the driver, so one
// build runs with and without a GPU.
//
// The types repeat those parts of cuda.h's binary interface that Baton uses. If CUDA is installed,
// tests/abi/cuda_abi_test.cc compares each type with the real header. tests/gpu_emulator/ has
// another library with these functions, which runs kernels on the CPU.
//
// Thread safety: the table is plain data, and the driver's functions are safe from any thread. Most
// functions use the context that is current on the calling thread (kernels/cuda/cuda_context.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/tensor_map.h"

namespace baton {

struct CuContextTag;    // CUctx_st
struct CuModuleTag;     // CUmod_st
struct CuFunctionTag;   // CUfunc_st
struct CuStreamTag;     // CUstream_st
struct CuEventTag;      // CUevent_st
struct CuGraphTag;      // CUgraph_st
struct CuGraphExecTag;  // CUgraphExec_st
using CuContext = CuContextTag*;
using CuModule = CuModuleTag*;
using CuFunction = CuFunctionTag*;
using CuStream = CuStreamTag*;
using CuEvent = CuEventTag*;
using CuGraph = CuGraphTag*;
using CuGraphExec = CuGraphExecTag*;
using CuDevice = int;
using CuDevicePointer = unsigned long long;  // NOLINT(google-runtime-int): as in cuda.h
using CuMemoryHandle = unsigned long long;   // NOLINT(google-runtime-int): as in cuda.h
using CuFlags64 = unsigned long long;        // NOLINT(google-runtime-int): as in cuda.h

// The codes that Baton names. IsCudaFault decides about the others too.
enum CuResult : int {
  kCuSuccess = 0,
  kCuInvalidValue = 1,
  kCuOutOfMemory = 2,
  kCuNoDevice = 100,
  kCuInvalidDevice = 101,
  kCuInvalidImage = 200,
  kCuInvalidContext = 201,
  kCuMapFailed = 205,
  kCuUnmapFailed = 206,
  kCuNoBinaryForGpu = 209,
  kCuPeerAccessUnsupported = 217,
  kCuInvalidPtx = 218,
  kCuNoJitCompiler = 221,
  kCuUnsupportedPtxVersion = 222,
  kCuJitDisabled = 223,
  kCuInvalidHandle = 400,
  kCuNotFound = 500,
  kCuNotReady = 600,
  kCuIllegalAddress = 700,
  kCuLaunchOutOfResources = 701,
  kCuPeerAccessAlreadyEnabled = 704,
  kCuLaunchFailed = 719,
  kCuNotPermitted = 800,
  kCuNotSupported = 801,
  kCuStreamCaptureUnsupported = 900,
  kCuStreamCaptureInvalidated = 901,
  kCuStreamCaptureUnmatched = 903,
  kCuUnknown = 999,
};

enum CuDeviceAttribute : int {
  kCuMultiprocessorCount = 16,
  kCuUnifiedAddressing = 41,
  kCuComputeCapabilityMajor = 75,
  kCuComputeCapabilityMinor = 76,
  kCuMaxSharedMemoryPerBlockOptin = 97,
  kCuHostPointersForRegisteredMemory = 91,
  kCuVirtualMemoryManagementSupported = 102,
};
enum CuFunctionAttribute : int {
  kCuMaxDynamicSharedBytes = 8,
  kCuSharedCarveout = 9,  // percent of the largest shared memory; -1: the driver decides
};
enum CuCaptureMode : int { kCuCaptureRelaxed = 2 };
enum CuAllocationType : int { kCuAllocationPinned = 1 };
enum CuLocationType : int { kCuLocationDevice = 1 };
enum CuHandleType : int { kCuHandleNone = 0 };
enum CuAccessFlags : int { kCuAccessReadWrite = 3 };
enum CuGranularity : int { kCuGranularityMinimum = 0 };
enum CuTileType : int { kCuTileUint16 = 1 };
enum CuTileInterleave : int { kCuTileInterleaveNone = 0 };
enum CuTileSwizzle : int { kCuTileSwizzleNone = 0 };  // values of SharedSwizzle
enum CuTilePromotion : int { kCuTilePromotion256 = 3 };
enum CuTileFill : int { kCuTileFillZeros = 0 };

inline constexpr unsigned int kCuStreamNonBlocking = 1;
inline constexpr unsigned int kCuEventDisableTiming = 2;
inline constexpr unsigned int kCuHostAllocPortable = 1;
inline constexpr unsigned int kCuHostRegisterPortable = 1;
inline constexpr unsigned int kCuHostRegisterMapped = 2;

struct CuLocation {
  CuLocationType type = kCuLocationDevice;
  int id = 0;
};
struct CuAllocationFlags {
  unsigned char compression_type = 0;
  unsigned char gpu_direct_rdma_capable = 0;
  unsigned short usage = 0;  // NOLINT(google-runtime-int): as in cuda.h
  unsigned char reserved[4] = {};
};
struct CuAllocationProperties {
  CuAllocationType type = kCuAllocationPinned;
  CuHandleType requested_handle_types = kCuHandleNone;
  CuLocation location = {};
  void* windows_metadata = nullptr;
  CuAllocationFlags flags = {};
};
struct CuAccess {
  CuLocation location = {};
  CuAccessFlags flags = kCuAccessReadWrite;
};

enum CuLaunchAttributeId : int { kCuLaunchProgrammaticSerialization = 6 };
struct alignas(8) CuLaunchAttribute {
  CuLaunchAttributeId id = kCuLaunchProgrammaticSerialization;
  int unused = 0;
  int allowed = 1;  // the kernel may begin before the kernel ahead in the stream has ended
  int rest_of_value[15] = {};
};
struct CuLaunchConfig {
  unsigned int grid[3] = {1, 1, 1};
  unsigned int block[3] = {1, 1, 1};
  unsigned int shared_bytes = 0;
  CuStream stream = nullptr;
  CuLaunchAttribute* attributes = nullptr;
  unsigned int attribute_count = 0;
};

// One member for each function, named as in cuda.h without "cu". BATON_CUDA_FUNCTIONS lists them
// with the names that the library exports.
struct CudaDriver {
  CuResult (*Init)(unsigned int flags) = nullptr;
  CuResult (*DriverGetVersion)(int* version) = nullptr;
  CuResult (*GetErrorName)(CuResult error, const char** name) = nullptr;
  CuResult (*GetErrorString)(CuResult error, const char** text) = nullptr;

  CuResult (*DeviceGetCount)(int* count) = nullptr;
  CuResult (*DeviceGet)(CuDevice* device, int ordinal) = nullptr;
  CuResult (*DeviceGetName)(char* name, int length, CuDevice device) = nullptr;
  CuResult (*DeviceGetAttribute)(int* value, CuDeviceAttribute attribute,
                                 CuDevice device) = nullptr;
  CuResult (*DevicePrimaryCtxRetain)(CuContext* context, CuDevice device) = nullptr;
  CuResult (*DevicePrimaryCtxRelease)(CuDevice device) = nullptr;
  CuResult (*CtxSetCurrent)(CuContext context) = nullptr;
  CuResult (*DeviceCanAccessPeer)(int* can, CuDevice device, CuDevice peer) = nullptr;
  CuResult (*CtxEnablePeerAccess)(CuContext peer, unsigned int flags) = nullptr;

  CuResult (*MemGetInfo)(size_t* free, size_t* total) = nullptr;
  CuResult (*MemAlloc)(CuDevicePointer* memory, size_t bytes) = nullptr;
  CuResult (*MemFree)(CuDevicePointer memory) = nullptr;
  CuResult (*MemHostAlloc)(void** memory, size_t bytes, unsigned int flags) = nullptr;
  CuResult (*MemFreeHost)(void* memory) = nullptr;
  CuResult (*MemHostRegister)(void* memory, size_t bytes, unsigned int flags) = nullptr;
  CuResult (*MemHostUnregister)(void* memory) = nullptr;
  CuResult (*MemAddressReserve)(CuDevicePointer* memory, size_t bytes, size_t alignment,
                                CuDevicePointer wish, CuFlags64 flags) = nullptr;
  CuResult (*MemAddressFree)(CuDevicePointer memory, size_t bytes) = nullptr;
  CuResult (*MemGetAllocationGranularity)(size_t* bytes, const CuAllocationProperties* properties,
                                          CuGranularity option) = nullptr;
  CuResult (*MemCreate)(CuMemoryHandle* handle, size_t bytes,
                        const CuAllocationProperties* properties, CuFlags64 flags) = nullptr;
  CuResult (*MemRelease)(CuMemoryHandle handle) = nullptr;
  CuResult (*MemMap)(CuDevicePointer memory, size_t bytes, size_t offset, CuMemoryHandle handle,
                     CuFlags64 flags) = nullptr;
  CuResult (*MemUnmap)(CuDevicePointer memory, size_t bytes) = nullptr;
  CuResult (*MemSetAccess)(CuDevicePointer memory, size_t bytes, const CuAccess* access,
                           size_t count) = nullptr;
  CuResult (*MemcpyAsync)(CuDevicePointer to, CuDevicePointer from, size_t bytes,
                          CuStream stream) = nullptr;
  CuResult (*MemsetD8Async)(CuDevicePointer memory, unsigned char value, size_t bytes,
                            CuStream stream) = nullptr;

  CuResult (*StreamCreate)(CuStream* stream, unsigned int flags) = nullptr;
  CuResult (*StreamDestroy)(CuStream stream) = nullptr;
  CuResult (*StreamSynchronize)(CuStream stream) = nullptr;
  CuResult (*StreamQuery)(CuStream stream) = nullptr;
  CuResult (*StreamBeginCapture)(CuStream stream, CuCaptureMode mode) = nullptr;
  CuResult (*StreamEndCapture)(CuStream stream, CuGraph* graph) = nullptr;
  CuResult (*EventCreate)(CuEvent* event, unsigned int flags) = nullptr;
  CuResult (*EventDestroy)(CuEvent event) = nullptr;
  CuResult (*EventRecord)(CuEvent event, CuStream stream) = nullptr;
  CuResult (*EventQuery)(CuEvent event) = nullptr;
  CuResult (*EventSynchronize)(CuEvent event) = nullptr;

  CuResult (*GraphInstantiate)(CuGraphExec* exec, CuGraph graph, CuFlags64 flags) = nullptr;
  CuResult (*GraphUpload)(CuGraphExec exec, CuStream stream) = nullptr;
  CuResult (*GraphLaunch)(CuGraphExec exec, CuStream stream) = nullptr;
  CuResult (*GraphExecDestroy)(CuGraphExec exec) = nullptr;
  CuResult (*GraphDestroy)(CuGraph graph) = nullptr;

  CuResult (*ModuleLoadData)(CuModule* module, const void* image) = nullptr;
  CuResult (*ModuleUnload)(CuModule module) = nullptr;
  CuResult (*ModuleGetFunction)(CuFunction* function, CuModule module, const char* name) = nullptr;
  CuResult (*FuncSetAttribute)(CuFunction function, CuFunctionAttribute attribute,
                               int value) = nullptr;
  CuResult (*LaunchKernel)(CuFunction function, unsigned int grid_x, unsigned int grid_y,
                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                           unsigned int block_z, unsigned int shared_bytes, CuStream stream,
                           void** params, void** extra) = nullptr;
  // Null: the driver is older than CUDA 11.8.
  CuResult (*LaunchKernelEx)(const CuLaunchConfig* config, CuFunction function, void** params,
                             void** extra) = nullptr;
  CuResult (*TensorMapEncodeTiled)(TensorMap* map, CuTileType type, uint32_t rank, void* address,
                                   const uint64_t* sizes, const uint64_t* strides,
                                   const uint32_t* box, const uint32_t* element_strides,
                                   CuTileInterleave interleave, CuTileSwizzle swizzle,
                                   CuTilePromotion promotion, CuTileFill fill) = nullptr;
};

// Calls DO(member, exported name) for each function of the table.
#define BATON_CUDA_FUNCTIONS(DO)                                 \
  DO(Init, cuInit)                                               \
  DO(DriverGetVersion, cuDriverGetVersion)                       \
  DO(GetErrorName, cuGetErrorName)                               \
  DO(GetErrorString, cuGetErrorString)                           \
  DO(DeviceGetCount, cuDeviceGetCount)                           \
  DO(DeviceGet, cuDeviceGet)                                     \
  DO(DeviceGetName, cuDeviceGetName)                             \
  DO(DeviceGetAttribute, cuDeviceGetAttribute)                   \
  DO(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)           \
  DO(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)      \
  DO(CtxSetCurrent, cuCtxSetCurrent)                             \
  DO(DeviceCanAccessPeer, cuDeviceCanAccessPeer)                 \
  DO(CtxEnablePeerAccess, cuCtxEnablePeerAccess)                 \
  DO(MemGetInfo, cuMemGetInfo_v2)                                \
  DO(MemAlloc, cuMemAlloc_v2)                                    \
  DO(MemFree, cuMemFree_v2)                                      \
  DO(MemHostAlloc, cuMemHostAlloc)                               \
  DO(MemFreeHost, cuMemFreeHost)                                 \
  DO(MemHostRegister, cuMemHostRegister_v2)                      \
  DO(MemHostUnregister, cuMemHostUnregister)                     \
  DO(MemAddressReserve, cuMemAddressReserve)                     \
  DO(MemAddressFree, cuMemAddressFree)                           \
  DO(MemGetAllocationGranularity, cuMemGetAllocationGranularity) \
  DO(MemCreate, cuMemCreate)                                     \
  DO(MemRelease, cuMemRelease)                                   \
  DO(MemMap, cuMemMap)                                           \
  DO(MemUnmap, cuMemUnmap)                                       \
  DO(MemSetAccess, cuMemSetAccess)                               \
  DO(MemcpyAsync, cuMemcpyAsync)                                 \
  DO(MemsetD8Async, cuMemsetD8Async)                             \
  DO(StreamCreate, cuStreamCreate)                               \
  DO(StreamDestroy, cuStreamDestroy_v2)                          \
  DO(StreamSynchronize, cuStreamSynchronize)                     \
  DO(StreamQuery, cuStreamQuery)                                 \
  DO(StreamBeginCapture, cuStreamBeginCapture_v2)                \
  DO(StreamEndCapture, cuStreamEndCapture)                       \
  DO(EventCreate, cuEventCreate)                                 \
  DO(EventDestroy, cuEventDestroy_v2)                            \
  DO(EventRecord, cuEventRecord)                                 \
  DO(EventQuery, cuEventQuery)                                   \
  DO(EventSynchronize, cuEventSynchronize)                       \
  DO(GraphInstantiate, cuGraphInstantiateWithFlags)              \
  DO(GraphUpload, cuGraphUpload)                                 \
  DO(GraphLaunch, cuGraphLaunch)                                 \
  DO(GraphExecDestroy, cuGraphExecDestroy)                       \
  DO(GraphDestroy, cuGraphDestroy)                               \
  DO(ModuleLoadData, cuModuleLoadData)                           \
  DO(ModuleUnload, cuModuleUnload)                               \
  DO(ModuleGetFunction, cuModuleGetFunction)                     \
  DO(FuncSetAttribute, cuFuncSetAttribute)                       \
  DO(LaunchKernel, cuLaunchKernel)                               \
  DO(TensorMapEncodeTiled, cuTensorMapEncodeTiled)

// The same for functions that the library may lack.
#define BATON_CUDA_NEWER_FUNCTIONS(DO) DO(LaunchKernelEx, cuLaunchKernelEx)

// Loads the first of `names` that the dynamic loader finds, such as "libcuda.so.1" or a path.
// Unavailable names the libraries, or the function that the library lacks. Newer functions that it
// lacks stay null.
absl::StatusOr<CudaDriver> LoadCudaDriver(const std::vector<std::string>& names);

// Returns the error of `call` with the driver's name and text for it: ResourceExhausted if memory
// is exhausted, Unavailable if there is no device, otherwise Internal. REQUIRES: an error.
absl::Status CudaErrorOf(const CudaDriver& driver, std::string_view call, CuResult result);

// Returns true for errors after which a context cannot be used any more. Its memory is then lost.
// Every code is such an error, also one that a later driver adds, unless it is known that only the
// call failed.
bool IsCudaFault(CuResult result);

}  // namespace baton
