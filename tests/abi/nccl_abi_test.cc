// Compares kernels/cuda/nccl_api.h with the real nccl.h and its library. Built where both are
// installed.

#include <nccl.h>

#include <cstddef>

#include "gtest/gtest.h"
#include "kernels/cuda/nccl_api.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/pool/host_pool.h"
#include "tests/abi/same_interface.h"

namespace baton {
namespace {

#define BATON_SAME_FUNCTION(table, member, real) \
  static_assert(IsSameFunction<decltype(table::member), decltype(&::real)>)

BATON_SAME_FUNCTION(NcclApi, GetVersion, ncclGetVersion);
BATON_SAME_FUNCTION(NcclApi, GetUniqueId, ncclGetUniqueId);
BATON_SAME_FUNCTION(NcclApi, CommInitRankConfig, ncclCommInitRankConfig);
BATON_SAME_FUNCTION(NcclApi, CommGetAsyncError, ncclCommGetAsyncError);
BATON_SAME_FUNCTION(NcclApi, CommAbort, ncclCommAbort);
BATON_SAME_FUNCTION(NcclApi, GroupStart, ncclGroupStart);
BATON_SAME_FUNCTION(NcclApi, GroupEnd, ncclGroupEnd);
BATON_SAME_FUNCTION(NcclApi, Send, ncclSend);
BATON_SAME_FUNCTION(NcclApi, Recv, ncclRecv);
BATON_SAME_FUNCTION(NcclApi, AllGather, ncclAllGather);
BATON_SAME_FUNCTION(NcclApi, Broadcast, ncclBroadcast);
BATON_SAME_FUNCTION(NcclApi, GetErrorString, ncclGetErrorString);
#undef BATON_SAME_FUNCTION

static_assert(int{kNcclSuccess} == int{ncclSuccess} &&
              int{kNcclUnhandledCudaError} == int{ncclUnhandledCudaError} &&
              int{kNcclSystemError} == int{ncclSystemError} &&
              int{kNcclInternalError} == int{ncclInternalError} &&
              int{kNcclInvalidArgument} == int{ncclInvalidArgument} &&
              int{kNcclInvalidUsage} == int{ncclInvalidUsage} &&
              int{kNcclRemoteError} == int{ncclRemoteError} &&
              int{kNcclInProgress} == int{ncclInProgress} && int{kNcclUint8} == int{ncclUint8});
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

TEST(NcclAbi, TheRealLibraryHasEveryFunction) {
  const auto nccl = LoadNccl({BATON_NCCL_LIBRARY});
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(*NcclVersionOf(*nccl), NCCL_VERSION_CODE);
}

TEST(NcclAbi, AMachineWithoutADeviceIsUnavailable) {
  const auto layout = KvLayout::Create({.layers = 1, .kv_heads = 1, .head_dim = 8},
                                       KvLayoutKind::kBlockMajor, 16, 1);
  std::byte pool{};
  NcclOptions options;
  options.nccl_libraries = {BATON_NCCL_LIBRARY};
  options.cuda_libraries = {BATON_CUDA_STUB_LIBRARY};  // finds no device
  options.device = 1 << 20;                            // more than any machine has
  HostPool lender(&pool, *layout);
  const auto runtime = NcclRuntime::Open(options, lender);
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kUnavailable) << runtime.status();
}

}  // namespace
}  // namespace baton
