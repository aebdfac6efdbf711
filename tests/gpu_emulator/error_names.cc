#include "tests/gpu_emulator/error_names.h"

#include <utility>

namespace baton::gpu_emulator {
namespace {

const std::pair<CuResult, const char*> kErrors[] = {
    {kCuSuccess, "CUDA_SUCCESS"},
    {kCuInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kCuOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kCuInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kCuInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
    {kCuInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kCuUnmapFailed, "CUDA_ERROR_UNMAP_FAILED"},
    {kCuPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {kCuPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
    {kCuInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
    {kCuNotFound, "CUDA_ERROR_NOT_FOUND"},
    {kCuNotReady, "CUDA_ERROR_NOT_READY"},
    {kCuIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {kCuLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
    {kCuStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {kCuStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {kCuStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {kCuUnknown, "CUDA_ERROR_UNKNOWN"},
};

}  // namespace

const char* ErrorName(CuResult error) {
  for (const auto& [known, name] : kErrors) {
    if (known == error) return name;
  }
  return nullptr;
}

}  // namespace baton::gpu_emulator
