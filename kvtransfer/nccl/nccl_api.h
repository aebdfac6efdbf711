// NCCL and the CUDA runtime as tables of functions, filled at run time. No binary links these
// libraries, so one build uses them wherever they are installed.
//
// The types repeat the binary interface of nccl.h and cuda_runtime_api.h, as far as Baton uses it.
// Where CUDA is installed, tests/abi/nccl_abi_test.cc compares every one of them with the real
// headers.
//
// Thread safety: tables are plain data; the libraries define the rules for their functions. A
// loaded library stays loaded.
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

// ncclConfig_v22800. Older and newer libraries read the fields that they know.
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
enum CudaCopyKind : int { kCudaCopyDefault = 4 };  // derives the direction from the addresses
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

// Older versions cannot distinguish a non-blocking communicator in progress from a failed one.
inline constexpr int kOldestNcclVersion = 21800;
inline constexpr int kNcclVersionsEnd = 30000;  // end of the major version with this interface

// Loads the first of `names` that the dynamic loader finds. Unavailable names the missing part: all
// of the libraries, or a function of the library that was found.
absl::StatusOr<CudaApi> LoadCuda(const std::vector<std::string>& names);
// Same for NCCL. FailedPrecondition for a version outside [kOldestNcclVersion, kNcclVersionsEnd).
absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& names);

// Returns the library's version in nccl.h's encoding: 22809 is 2.28.9.
absl::StatusOr<int> NcclVersionOf(const NcclApi& nccl);

// Returns the error of `call` as Unavailable, with the library's text. REQUIRES: an error, not
// kNcclInProgress or kCudaNotReady.
absl::Status NcclError(const NcclApi& nccl, const char* call, NcclResult result);
absl::Status CudaError(const CudaApi& cuda, const char* call, CudaResult result);

}  // namespace baton
