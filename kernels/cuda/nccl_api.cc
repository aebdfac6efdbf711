#include "kernels/cuda/nccl_api.h"

#include "absl/strings/str_format.h"
#include "common/shared_library.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& names) {
  SharedLibrary library(names);
  NcclApi nccl;
  library.Find("ncclGetVersion", nccl.GetVersion);
  library.Find("ncclGetUniqueId", nccl.GetUniqueId);
  library.Find("ncclCommInitRankConfig", nccl.CommInitRankConfig);
  library.Find("ncclCommGetAsyncError", nccl.CommGetAsyncError);
  library.Find("ncclCommAbort", nccl.CommAbort);
  library.Find("ncclGroupStart", nccl.GroupStart);
  library.Find("ncclGroupEnd", nccl.GroupEnd);
  library.Find("ncclSend", nccl.Send);
  library.Find("ncclRecv", nccl.Recv);
  library.Find("ncclAllGather", nccl.AllGather);
  library.Find("ncclBroadcast", nccl.Broadcast);
  library.Find("ncclGetErrorString", nccl.GetErrorString);
  RETURN_IF_ERROR(library.status());
  ASSIGN_OR_RETURN(const int version, NcclVersionOf(nccl));
  if (version < kOldestNcclVersion || version >= kNcclVersionsEnd) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "NCCL version %d is outside [%d, %d)", version, kOldestNcclVersion, kNcclVersionsEnd));
  }
  return nccl;
}

absl::StatusOr<int> NcclVersionOf(const NcclApi& nccl) {
  int version = 0;
  const NcclResult result = nccl.GetVersion(&version);
  if (result != kNcclSuccess) return NcclError(nccl, "ncclGetVersion", result);
  return version;
}

absl::Status NcclError(const NcclApi& nccl, const char* call, NcclResult result) {
  return absl::UnavailableError(
      absl::StrFormat("%s: %s (%d)", call, nccl.GetErrorString(result), static_cast<int>(result)));
}

absl::Status NcclCudaError(const CudaDriver& driver, const char* call, CuResult result) {
  return absl::UnavailableError(CudaErrorOf(driver, call, result).message());
}

}  // namespace baton
