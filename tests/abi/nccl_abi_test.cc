// What kvtransfer/nccl/nccl_api.h says of the interface of NCCL and the CUDA runtime, against their
// own headers and libraries. Built where CUDA is installed (BATON_CUDA).

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_api.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/pool/host_pool.h"

namespace baton {
namespace {

// Whether two types are passed alike: enums and structures of equal size, pointers of equal
// constness, anything else if it is the same type.
template <typename Ours, typename Real>
constexpr bool PassedAlike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Real>) {
    return std::is_const_v<std::remove_pointer_t<Ours>> ==
           std::is_const_v<std::remove_pointer_t<Real>>;
  } else if constexpr ((std::is_enum_v<Ours> && std::is_enum_v<Real>) ||
                       (std::is_class_v<Ours> && std::is_class_v<Real>)) {
    return sizeof(Ours) == sizeof(Real) && alignof(Ours) == alignof(Real);
  } else {
    return std::is_same_v<Ours, Real>;
  }
}

template <typename Ours, typename Real>
struct Alike : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
requires(sizeof...(A1) == sizeof...(A2)) struct Alike<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<PassedAlike<R1, R2>() && (PassedAlike<A1, A2>() && ...)> {
};

#define BATON_SAME_FUNCTION(table, member, real) \
  static_assert(Alike<decltype(table::member), decltype(&::real)>::value)

BATON_SAME_FUNCTION(NcclApi, GetVersion, ncclGetVersion);
BATON_SAME_FUNCTION(NcclApi, GetUniqueId, ncclGetUniqueId);
BATON_SAME_FUNCTION(NcclApi, CommInitRankConfig, ncclCommInitRankConfig);
BATON_SAME_FUNCTION(NcclApi, CommGetAsyncError, ncclCommGetAsyncError);
BATON_SAME_FUNCTION(NcclApi, CommAbort, ncclCommAbort);
BATON_SAME_FUNCTION(NcclApi, GroupStart, ncclGroupStart);
BATON_SAME_FUNCTION(NcclApi, GroupEnd, ncclGroupEnd);
BATON_SAME_FUNCTION(NcclApi, Send, ncclSend);
BATON_SAME_FUNCTION(NcclApi, Recv, ncclRecv);
BATON_SAME_FUNCTION(NcclApi, GetErrorString, ncclGetErrorString);
BATON_SAME_FUNCTION(CudaApi, GetDeviceCount, cudaGetDeviceCount);
BATON_SAME_FUNCTION(CudaApi, SetDevice, cudaSetDevice);
BATON_SAME_FUNCTION(CudaApi, Free, cudaFree);
BATON_SAME_FUNCTION(CudaApi, MemcpyAsync, cudaMemcpyAsync);
BATON_SAME_FUNCTION(CudaApi, StreamCreateWithFlags, cudaStreamCreateWithFlags);
BATON_SAME_FUNCTION(CudaApi, StreamDestroy, cudaStreamDestroy);
BATON_SAME_FUNCTION(CudaApi, StreamSynchronize, cudaStreamSynchronize);
BATON_SAME_FUNCTION(CudaApi, StreamQuery, cudaStreamQuery);
BATON_SAME_FUNCTION(CudaApi, EventCreateWithFlags, cudaEventCreateWithFlags);
BATON_SAME_FUNCTION(CudaApi, EventDestroy, cudaEventDestroy);
BATON_SAME_FUNCTION(CudaApi, EventRecord, cudaEventRecord);
BATON_SAME_FUNCTION(CudaApi, EventQuery, cudaEventQuery);
BATON_SAME_FUNCTION(CudaApi, GetErrorString, cudaGetErrorString);
// Overloaded in C++: the plain one must be there.
static_assert(Alike<decltype(CudaApi::Malloc),
                    decltype(static_cast<cudaError_t (*)(void**, size_t)>(&::cudaMalloc))>::value);
#undef BATON_SAME_FUNCTION

static_assert(int{kNcclSuccess} == int{ncclSuccess} &&
              int{kNcclUnhandledCudaError} == int{ncclUnhandledCudaError} &&
              int{kNcclSystemError} == int{ncclSystemError} &&
              int{kNcclInternalError} == int{ncclInternalError} &&
              int{kNcclInvalidArgument} == int{ncclInvalidArgument} &&
              int{kNcclInvalidUsage} == int{ncclInvalidUsage} &&
              int{kNcclRemoteError} == int{ncclRemoteError} &&
              int{kNcclInProgress} == int{ncclInProgress} && int{kNcclUint8} == int{ncclUint8});
static_assert(int{kCudaSuccess} == int{cudaSuccess} &&
              int{kCudaNotReady} == int{cudaErrorNotReady} &&
              int{kCudaCopyDefault} == int{cudaMemcpyDefault} &&
              kCudaStreamNonBlocking == cudaStreamNonBlocking &&
              kCudaEventDisableTiming == cudaEventDisableTiming);
static_assert(sizeof(NcclUniqueId) == NCCL_UNIQUE_ID_BYTES);

static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName) &&
              offsetof(NcclConfig, shrink_share) == offsetof(ncclConfig_t, shrinkShare));

TEST(NcclAbi, TheConfigEqualsTheHeadersInitializer) {
  const NcclConfig ours;
  const ncclConfig_t real = NCCL_CONFIG_INITIALIZER;
  EXPECT_LE(ours.size, real.size);
  EXPECT_EQ(ours.magic, real.magic);
  EXPECT_LE(ours.version, real.version);
  EXPECT_EQ(ours.blocking, real.blocking);
  EXPECT_EQ(ours.net_name, real.netName);
}

TEST(NcclAbi, TheRealLibrariesHaveEveryFunction) {
  const auto nccl = LoadNccl({BATON_NCCL_LIBRARY});
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(*NcclVersionOf(*nccl), NCCL_VERSION_CODE);
  const auto cuda = LoadCuda({BATON_CUDART_LIBRARY});
  ASSERT_TRUE(cuda.ok()) << cuda.status();
}

TEST(NcclAbi, AMachineWithoutADeviceIsUnavailable) {
  const auto layout = KvLayout::Create({.layers = 1, .kv_heads = 1, .head_dim = 8},
                                       KvLayoutKind::kBlockMajor, 16, 1);
  std::byte pool{};
  NcclOptions options;
  options.nccl_libraries = {BATON_NCCL_LIBRARY};
  options.cuda_libraries = {BATON_CUDART_LIBRARY};
  options.device = 1 << 20;  // nobody has so many
  HostPool lender(&pool, *layout);
  const auto runtime = NcclRuntime::Open(options, lender);
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kUnavailable) << runtime.status();
}

}  // namespace
}  // namespace baton
