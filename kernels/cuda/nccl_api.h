// NCCL as a table of functions, filled at run time. No binary links the library, so one build uses
// it wherever it is installed. The CUDA driver has a table of its own (kernels/cuda/cuda_driver.h).
//
// The types repeat those parts of nccl.h's binary interface that Baton uses. If NCCL is installed,
// tests/abi/nccl_abi_test.cc compares each type with the real header.
//
// Thread safety: the table is plain data; the library defines the rules for its functions. A loaded
// library stays loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_driver.h"

namespace baton {

struct NcclComm;  // ncclComm

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
                     CuStream stream) = nullptr;
  NcclResult (*Recv)(void* to, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     CuStream stream) = nullptr;
  NcclResult (*AllGather)(const void* from, void* to, size_t count, NcclDataType type,
                          NcclComm* comm, CuStream stream) = nullptr;
  NcclResult (*Broadcast)(const void* from, void* to, size_t count, NcclDataType type, int root,
                          NcclComm* comm, CuStream stream) = nullptr;
  const char* (*GetErrorString)(NcclResult result) = nullptr;
};

// Older versions cannot distinguish a non-blocking communicator in progress from a failed one.
inline constexpr int kOldestNcclVersion = 21800;
inline constexpr int kNcclVersionsEnd = 30000;  // end of the major version with this interface

// Loads the first of `names` that the dynamic loader finds. Unavailable names the missing part: all
// of the libraries, or a function of the library that was found. FailedPrecondition: a version
// outside [kOldestNcclVersion, kNcclVersionsEnd).
absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& names);

// Returns the library's version in nccl.h's encoding: 22809 is 2.28.9.
absl::StatusOr<int> NcclVersionOf(const NcclApi& nccl);

// Returns the error of `call` as Unavailable, with the library's text, because payload can go over
// TCP instead. REQUIRES: an error, not kNcclInProgress or kCuNotReady.
absl::Status NcclError(const NcclApi& nccl, const char* call, NcclResult result);
absl::Status NcclCudaError(const CudaDriver& driver, const char* call, CuResult result);

}  // namespace baton
