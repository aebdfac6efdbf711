#include "kvtransfer/nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace baton {
namespace {

// Loads a library and looks its functions up by name. After the first missing one, status() names
// it.
class Library {
 public:
  explicit Library(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      name_ = name;
      if (handle_ != nullptr) return;
    }
    const char* why = dlerror();
    status_ = absl::UnavailableError(absl::StrFormat("no library \"%s\": %s",
                                                     absl::StrJoin(names, "\" or \""),
                                                     why == nullptr ? "no name was given" : why));
  }

  template <typename F>
  void Find(const char* name, F*& function) {
    if (!status_.ok()) return;
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr) {
      status_ = absl::UnavailableError(absl::StrFormat("%s has no function %s", name_, name));
      return;
    }
    static_assert(sizeof(function) == sizeof(symbol));
    std::memcpy(&function, &symbol, sizeof(symbol));
  }
  const absl::Status& status() const { return status_; }

 private:
  void* handle_ = nullptr;
  std::string name_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<CudaApi> LoadCuda(const std::vector<std::string>& names) {
  Library library(names);
  CudaApi cuda;
  library.Find("cudaGetDeviceCount", cuda.GetDeviceCount);
  library.Find("cudaSetDevice", cuda.SetDevice);
  library.Find("cudaMalloc", cuda.Malloc);
  library.Find("cudaFree", cuda.Free);
  library.Find("cudaMemcpyAsync", cuda.MemcpyAsync);
  library.Find("cudaStreamCreateWithFlags", cuda.StreamCreateWithFlags);
  library.Find("cudaStreamDestroy", cuda.StreamDestroy);
  library.Find("cudaStreamSynchronize", cuda.StreamSynchronize);
  library.Find("cudaStreamQuery", cuda.StreamQuery);
  library.Find("cudaEventCreateWithFlags", cuda.EventCreateWithFlags);
  library.Find("cudaEventDestroy", cuda.EventDestroy);
  library.Find("cudaEventRecord", cuda.EventRecord);
  library.Find("cudaEventQuery", cuda.EventQuery);
  library.Find("cudaGetErrorString", cuda.GetErrorString);
  RETURN_IF_ERROR(library.status());
  return cuda;
}

absl::StatusOr<NcclApi> LoadNccl(const std::vector<std::string>& names) {
  Library library(names);
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

absl::Status CudaError(const CudaApi& cuda, const char* call, CudaResult result) {
  return absl::UnavailableError(
      absl::StrFormat("%s: %s (%d)", call, cuda.GetErrorString(result), static_cast<int>(result)));
}

}  // namespace baton
