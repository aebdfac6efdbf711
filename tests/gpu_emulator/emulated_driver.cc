// The functions of kernels/cuda/cuda_driver.h on the emulated GPU. They check what the driver
// checks: handles, contexts, addresses and sizes. emulated_launches.cc has the functions that
// launch kernels, emulator_controls.cc those for tests.
#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu_emulator/driver_faults.h"
#include "tests/gpu_emulator/emulated_gpu.h"
#include "tests/gpu_emulator/error_names.h"
#include "tests/gpu_emulator/planted_faults.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton::gpu_emulator {
namespace {

constexpr char kImage[] = "emulated kernels";
// The GPU of the current context.
EmulatedGpu& Gpu() { return EmulatedGpu::Current(); }

bool LeftOut(DriverCall call) { return DriverFaults::Get().FaultOf(call) == CallFault::kLeftOut; }

// Pageable memory is read at once, as by the driver, which stages it.
CuResult EnqueueCopy(CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream) {
  Residence target = Residence::kPageable;
  Residence source = Residence::kPageable;
  if (Gpu().Locate(to, bytes, &target) != kCuSuccess ||
      Gpu().Locate(from, bytes, &source) != kCuSuccess) {
    return kCuInvalidValue;
  }
  const CallFault fault = DriverFaults::Get().FaultOf(DriverCall::kCopy);
  if (fault == CallFault::kLeftOut) return kCuSuccess;
  Work work{.kind = Work::Kind::kCopy,
            .to = to,
            .from = from,
            .bytes = bytes,
            .late = fault == CallFault::kLate};
  if (source == Residence::kPageable) {
    const auto* const begin = reinterpret_cast<const std::byte*>(from);
    work.source.assign(begin, begin + bytes);
  }
  const CuResult enqueued = Gpu().Enqueue(stream, std::move(work));
  if (enqueued != kCuSuccess || target != Residence::kPageable) return enqueued;
  return Gpu().Synchronize(stream);
}

}  // namespace

#define USABLE() \
  if (const CuResult usable = Gpu().Usable(); usable != kCuSuccess) return usable
#define USABLE_OUTSIDE_CAPTURE() \
  if (const CuResult usable = Gpu().UsableOutsideCapture(); usable != kCuSuccess) return usable

extern "C" {

extern const void* const baton_cuda_images[];
const void* const baton_cuda_images[] = {kImage, nullptr};

// ---- device and context -------------------------------------------------------------------------

CuResult cuInit(unsigned int flags) { return flags == 0 ? kCuSuccess : kCuInvalidValue; }

CuResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCuSuccess;
}

CuResult cuGetErrorName(CuResult error, const char** name) {
  *name = ErrorName(error);
  return *name == nullptr ? kCuInvalidValue : kCuSuccess;
}

CuResult cuGetErrorString(CuResult error, const char** text) {
  *text = "error of the emulated GPU";
  return ErrorName(error) == nullptr ? kCuInvalidValue : kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) {
  *count = EmulatedGpu::Of(0).call_faults().devices;
  return kCuSuccess;
}

CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= EmulatedGpu::Of(0).call_faults().devices) return kCuInvalidDevice;
  *device = ordinal;
  return kCuSuccess;
}

CuResult cuDeviceGetName(char* name, int length, CuDevice) {
  std::snprintf(name, static_cast<size_t>(length), "emulated GPU");
  return kCuSuccess;
}

CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute attribute, CuDevice device) {
  if (device < 0 || device >= kMostDevices) return kCuInvalidDevice;
  EmulatedGpu& gpu = EmulatedGpu::Of(device);
  switch (attribute) {
    case kCuMultiprocessorCount:
      *value = 4;  // few, so that persistent kernels have several units for each block
      return kCuSuccess;
    case kCuUnifiedAddressing:
    case kCuHostPointersForRegisteredMemory:
    case kCuVirtualMemoryManagementSupported:
      *value = 1;
      return kCuSuccess;
    case kCuComputeCapabilityMajor:
      *value = gpu.compute_capability() / 10;
      return kCuSuccess;
    case kCuComputeCapabilityMinor:
      *value = gpu.compute_capability() % 10;
      return kCuSuccess;
    case kCuMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(gpu.settings().shared_bytes);
      return kCuSuccess;
  }
  return kCuInvalidValue;
}

CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice device) {
  if (device < 0 || device >= kMostDevices) return kCuInvalidDevice;
  *context = EmulatedGpu::Of(device).Retain();
  return kCuSuccess;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice device) {
  if (device < 0 || device >= kMostDevices) return kCuInvalidDevice;
  return EmulatedGpu::Of(device).Release();
}
CuResult cuCtxSetCurrent(CuContext context) { return EmulatedGpu::SetCurrent(context); }

CuResult cuDeviceCanAccessPeer(int* can, CuDevice device, CuDevice peer) {
  if (device < 0 || device >= kMostDevices || peer < 0 || peer >= kMostDevices) {
    return kCuInvalidDevice;
  }
  *can = device != peer && EmulatedGpu::Of(0).call_faults().peers ? 1 : 0;
  return kCuSuccess;
}
CuResult cuCtxEnablePeerAccess(CuContext peer, unsigned int flags) {
  USABLE();
  if (flags != 0 || peer == nullptr) return kCuInvalidValue;
  if (!EmulatedGpu::Of(0).call_faults().peers) return kCuPeerAccessUnsupported;
  return Gpu().EnablePeer(peer);
}

// ---- memory -------------------------------------------------------------------------------------

CuResult cuMemGetInfo_v2(size_t* free, size_t* total) {
  USABLE();
  *free = Gpu().memory().free();
  *total = Gpu().memory().total();
  return kCuSuccess;
}

CuResult cuMemAlloc_v2(CuDevicePointer* memory, size_t bytes) {
  USABLE_OUTSIDE_CAPTURE();
  const CuResult allocated = Gpu().memory().Allocate(memory, bytes);
  if (allocated == kCuSuccess) Gpu().CountAllocation();
  return allocated;
}

// Waits for all work, as the driver does.
CuResult cuMemFree_v2(CuDevicePointer memory) {
  USABLE_OUTSIDE_CAPTURE();
  if (const CuResult ended = Gpu().SynchronizeAll(); ended != kCuSuccess) return ended;
  return Gpu().memory().Free(memory);
}

CuResult cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
  USABLE_OUTSIDE_CAPTURE();
  return Gpu().memory().AllocatePinned(memory, bytes);
}
// Does not wait: work that still uses the memory is a fault.
CuResult cuMemFreeHost(void* memory) {
  USABLE_OUTSIDE_CAPTURE();
  return Gpu().memory().FreePinned(memory);
}

CuResult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) {
  USABLE_OUTSIDE_CAPTURE();
  if (flags != (kCuHostRegisterPortable | kCuHostRegisterMapped)) return kCuInvalidValue;
  const auto refused =
      static_cast<CuResult>(EmulatedGpu::Of(0).call_faults().register_result.load());
  return refused != kCuSuccess ? refused : Gpu().memory().RegisterPinned(memory, bytes);
}
CuResult cuMemHostUnregister(void* memory) {
  USABLE_OUTSIDE_CAPTURE();
  return Gpu().memory().UnregisterPinned(memory);
}

CuResult cuMemAddressReserve(CuDevicePointer* memory, size_t bytes, size_t alignment,
                             CuDevicePointer, CuFlags64) {
  USABLE();
  if (alignment > kGranularity) return kCuInvalidValue;
  return Gpu().memory().ReserveAddresses(memory, bytes);
}
CuResult cuMemAddressFree(CuDevicePointer memory, size_t bytes) {
  USABLE();
  return Gpu().memory().FreeAddresses(memory, bytes);
}
CuResult cuMemGetAllocationGranularity(size_t* bytes, const CuAllocationProperties*,
                                       CuGranularity) {
  *bytes = kGranularity;
  return kCuSuccess;
}
CuResult cuMemCreate(CuMemoryHandle* handle, size_t bytes, const CuAllocationProperties*,
                     CuFlags64) {
  USABLE();
  const CuResult created = Gpu().memory().Create(handle, bytes);
  if (created == kCuSuccess) Gpu().CountAllocation();
  return created;
}
CuResult cuMemRelease(CuMemoryHandle handle) {
  USABLE();
  return Gpu().memory().Release(handle);
}
CuResult cuMemMap(CuDevicePointer memory, size_t bytes, size_t offset, CuMemoryHandle handle,
                  CuFlags64) {
  USABLE();
  PlantedFaults::Get().WaitToMap();
  return offset == 0 ? Gpu().memory().Map(memory, bytes, handle) : kCuInvalidValue;
}
CuResult cuMemUnmap(CuDevicePointer memory, size_t bytes) {
  USABLE();
  if (PlantedFaults::Get().NextUnmapFails()) return kCuUnmapFailed;
  return Gpu().memory().Unmap(memory, bytes);
}
CuResult cuMemSetAccess(CuDevicePointer memory, size_t bytes, const CuAccess* access,
                        size_t count) {
  USABLE();
  if (count != 1 || access->flags != kCuAccessReadWrite) return kCuInvalidValue;
  const CuResult allowed = Gpu().memory().AllowAccess(memory, bytes);
  if (allowed == kCuSuccess) Gpu().CountAccessChange();
  return allowed;
}

CuResult cuMemcpyAsync(CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream) {
  USABLE();
  const auto refused = static_cast<CuResult>(EmulatedGpu::Of(0).call_faults().copy_result.load());
  if (refused != kCuSuccess) return refused;
  return EnqueueCopy(to, from, bytes, stream);
}

CuResult cuMemsetD8Async(CuDevicePointer memory, unsigned char value, size_t bytes,
                         CuStream stream) {
  USABLE();
  Residence residence = Residence::kPageable;
  const CuResult located = Gpu().memory().Locate(memory, bytes, &residence);
  if (located != kCuSuccess || residence != Residence::kDevice) return kCuInvalidValue;
  return Gpu().Enqueue(stream,
                       {.kind = Work::Kind::kSet, .to = memory, .bytes = bytes, .value = value});
}

// ---- streams, events and graphs -----------------------------------------------------------------

CuResult cuStreamCreate(CuStream* stream, unsigned int) {
  USABLE();
  return Gpu().CreateStream(stream);
}
CuResult cuStreamDestroy_v2(CuStream stream) {
  USABLE();
  return Gpu().DestroyStream(stream);
}
CuResult cuStreamSynchronize(CuStream stream) {
  USABLE();
  if (LeftOut(DriverCall::kStreamSynchronize)) return kCuSuccess;
  return Gpu().Synchronize(stream);
}
CuResult cuStreamQuery(CuStream stream) {
  USABLE();
  if (LeftOut(DriverCall::kStreamQuery)) return kCuSuccess;
  return Gpu().Query(stream);
}
CuResult cuStreamBeginCapture_v2(CuStream stream, CuCaptureMode) {
  USABLE();
  return Gpu().BeginCapture(stream);
}
CuResult cuStreamEndCapture(CuStream stream, CuGraph* graph) {
  USABLE();
  return Gpu().EndCapture(stream, graph);
}
CuResult cuEventCreate(CuEvent* event, unsigned int) {
  USABLE();
  return Gpu().CreateEvent(event);
}
CuResult cuEventDestroy_v2(CuEvent event) {
  USABLE();
  return Gpu().DestroyEvent(event);
}
CuResult cuEventRecord(CuEvent event, CuStream stream) {
  USABLE();
  if (LeftOut(DriverCall::kEventRecord)) return kCuSuccess;
  return Gpu().Record(event, stream);
}
CuResult cuEventQuery(CuEvent event) {
  USABLE();
  if (LeftOut(DriverCall::kEventQuery)) return kCuSuccess;
  return Gpu().Query(event);
}
CuResult cuEventSynchronize(CuEvent event) {
  USABLE();
  if (LeftOut(DriverCall::kEventSynchronize)) return kCuSuccess;
  return Gpu().Synchronize(event);
}
CuResult cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph, CuFlags64 flags) {
  USABLE();
  return flags == 0 ? Gpu().Instantiate(exec, graph) : kCuInvalidValue;
}
CuResult cuGraphUpload(CuGraphExec exec, CuStream) {
  USABLE();
  return Gpu().UploadGraph(exec);
}
CuResult cuGraphLaunch(CuGraphExec exec, CuStream stream) {
  USABLE();
  return Gpu().LaunchGraph(exec, stream);
}
CuResult cuGraphExecDestroy(CuGraphExec exec) {
  USABLE();
  return Gpu().DestroyExec(exec);
}
CuResult cuGraphDestroy(CuGraph graph) {
  USABLE();
  return Gpu().DestroyGraph(graph);
}

// ---- kernels ------------------------------------------------------------------------------------

CuResult cuModuleLoadData(CuModule* module, const void* image) {
  USABLE();
  *module = reinterpret_cast<CuModule>(const_cast<char*>(kImage));
  return image == kImage ? kCuSuccess : kCuInvalidImage;
}
CuResult cuModuleUnload(CuModule) {
  USABLE();
  return kCuSuccess;
}
CuResult cuModuleGetFunction(CuFunction* function, CuModule, const char* name) {
  USABLE();
  DriverFaults::Get().FaultOf(DriverCall::kFindKernel);
  return Gpu().FindFunction(function, name);
}
CuResult cuFuncSetAttribute(CuFunction function, CuFunctionAttribute attribute, int value) {
  USABLE();
  EmulatedFunction* const found = Gpu().FunctionOf(function);
  if (found == nullptr) return kCuInvalidValue;
  switch (attribute) {
    case kCuMaxDynamicSharedBytes:
      if (value < 0 || static_cast<uint32_t>(value) > Gpu().settings().shared_bytes) break;
      found->max_shared_bytes = static_cast<uint32_t>(value);
      return kCuSuccess;
    case kCuSharedCarveout:
      if (value < -1 || value > 100) break;
      if (value == 100) Gpu().Count(&EmulatorCounters::most_shared);
      return kCuSuccess;
  }
  return kCuInvalidValue;
}

CuResult cuTensorMapEncodeTiled(TensorMap* map, CuTileType type, uint32_t rank, void* address,
                                const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* element_strides, CuTileInterleave interleave,
                                CuTileSwizzle swizzle, CuTilePromotion promotion, CuTileFill fill) {
  USABLE();
  if (type != kCuTileUint16 || rank < 1 || rank > kMostTileRank ||
      interleave != kCuTileInterleaveNone || promotion != kCuTilePromotion256 ||
      fill != kCuTileFillZeros || reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0) {
    return kCuInvalidValue;
  }
  TiledTensor tensor;
  tensor.address = address;
  tensor.element_bytes = 2;
  tensor.rank = static_cast<int>(rank);
  tensor.swizzle = static_cast<SharedSwizzle>(swizzle);
  for (uint32_t i = 0; i < rank; ++i) {
    if (element_strides[i] != 1) return kCuInvalidValue;
    tensor.sizes[i] = sizes[i];
    tensor.box[i] = box[i];
    if (i > 0) tensor.stride_bytes[i] = strides[i - 1];
  }
  const absl::StatusOr<TensorMap> encoded = EncodeTensorMap(tensor);
  if (!encoded.ok()) return kCuInvalidValue;
  *map = *encoded;
  return kCuSuccess;
}

}  // extern "C"

#undef USABLE
#undef USABLE_OUTSIDE_CAPTURE

// Each function has the type that the table has.
extern "C" std::remove_pointer_t<decltype(CudaDriver::LaunchKernel)> cuLaunchKernel;
#define BATON_SAME_TYPE(member, name) \
  static_assert(std::is_same_v<decltype(&name), decltype(CudaDriver::member)>);
BATON_CUDA_FUNCTIONS(BATON_SAME_TYPE)
#undef BATON_SAME_TYPE

}  // namespace baton::gpu_emulator
