// NCCL and the CUDA runtime as tables of functions, filled at run time: no binary links either, and
// one that was built without them uses them where they are installed.
//
// The types repeat what nccl.h and cuda_runtime_api.h say of their binary interface, as far as it
// is used. Where CUDA is installed, tests/abi/nccl_abi_test.cc compares every one of them with the
// real headers.
//
// Thread safety: tables are plain data; the functions are the libraries' own. A library, once
// loaded, stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

struct NcclComm;       // ncclComm
struct CudaStreamTag;  // CUstream_st
struct CudaEventTag;   // CUevent_st
using CudaStream = CudaStreamTag*;
using CudaEvent = CudaEventTag*;

struct NcclUniqueId {
  char internal[128];
};

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum NcclDataType : int { kNcclUint8 = 1 };

// ncclConfig_v22800. Older and newer libraries read as much of it as they know.
struct NcclConfig {
  static constexpr int kUndefined = INT32_MIN;
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22809;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

struct NcclApi {
  NcclResult (*GetVersion)(int* version) = nullptr;
  NcclResult (*GetUniqueId)(NcclUniqueId* id) = nullptr;
  NcclResult (*CommInitRankConfig)(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                   NcclConfig* config) = nullptr;
  NcclResult (*CommGetAsyncError)(NcclComm* comm, NcclResult* error) = nullptr;
  NcclResult (*CommAbort)(NcclComm* comm) = nullptr;
  NcclResult (*GroupStart)() = nullptr;
  NcclResult (*GroupEnd)() = nullptr;
  NcclResult (*Send)(const void* from, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     CudaStream stream) = nullptr;
  NcclResult (*Recv)(void* to, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     CudaStream stream) = nullptr;
  const char* (*GetErrorString)(NcclResult result) = nullptr;
};

enum CudaResult : int { kCudaSuccess = 0, kCudaNotReady = 600 };
enum CudaCopyKind : int { kCudaCopyDefault = 4 };  // from where to where follows from the addresses
inline constexpr unsigned int kCudaStreamNonBlocking = 1;
inline constexpr unsigned int kCudaEventDisableTiming = 2;

struct CudaApi {
  CudaResult (*GetDeviceCount)(int* count) = nullptr;
  CudaResult (*SetDevice)(int device) = nullptr;
  CudaResult (*Malloc)(void** memory, size_t bytes) = nullptr;
  CudaResult (*Free)(void* memory) = nullptr;
  CudaResult (*MemcpyAsync)(void* to, const void* from, size_t bytes, CudaCopyKind kind,
                            CudaStream stream) = nullptr;
  CudaResult (*StreamCreateWithFlags)(CudaStream* stream, unsigned int flags) = nullptr;
  CudaResult (*StreamDestroy)(CudaStream stream) = nullptr;
  CudaResult (*StreamSynchronize)(CudaStream stream) = nullptr;
  CudaResult (*StreamQuery)(CudaStream stream) = nullptr;
  CudaResult (*EventCreateWithFlags)(CudaEvent* event, unsigned int flags) = nullptr;
  CudaResult (*EventDestroy)(CudaEvent event) = nullptr;
  CudaResult (*EventRecord)(CudaEvent event, CudaStream stream) = nullptr;
  CudaResult (*EventQuery)(CudaEvent event) = nullptr;
  const char* (*GetErrorString)(CudaResult result) = nullptr;
};

// Older ones lack non-blocking communicators that can be told apart from failed ones.
inline constexpr int kOldestNcclVersion = 21800;
inline constexpr int kNcclVersionsEnd = 30000;  // of the major version whose interface this is

// The first of `names` that the dynamic loader finds. Unavailable names what is missing: all of the
// libraries, or a function in the one that was found.
absl::StatusOr<CudaApi> LoadCuda(const std::vector<std::string>& names);
// FailedPrecondition for a version outside [kOldestNcclVersion, kNcclVersionsEnd).
absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& names);

// The library's version as nccl.h counts, 22809 for 2.28.9.
absl::StatusOr<int> NcclVersionOf(const NcclApi& nccl);

// What went wrong in `call`: Unavailable with the library's words. REQUIRES: an error, not
// kNcclInProgress or kCudaNotReady.
absl::Status NcclError(const NcclApi& nccl, const char* call, NcclResult result);
absl::Status CudaError(const CudaApi& cuda, const char* call, CudaResult result);

}  // namespace baton
