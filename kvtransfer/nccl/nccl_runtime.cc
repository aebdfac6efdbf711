#include "kvtransfer/nccl/nccl_runtime.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/protocol/transfer_frame.h"

namespace baton {
namespace {

absl::Status CheckNcclOptions(const NcclOptions& options) {
  const auto check = [](const char* name, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s %d is outside [1, %d]", name, value, most));
  };
  RETURN_IF_ERROR(check("window", options.window, kMaxNcclWindow));
  RETURN_IF_ERROR(check("batch_bytes", options.batch_bytes, kMaxNcclBatchBytes));
  RETURN_IF_ERROR(check("max_communicators", options.max_communicators, 4096));
  RETURN_IF_ERROR(check("create_timeout_ms", options.create_timeout_ms, INT32_MAX));
  RETURN_IF_ERROR(check("batch_timeout_ms", options.batch_timeout_ms, INT32_MAX));
  RETURN_IF_ERROR(check("retry_ms", options.retry_ms, INT32_MAX));
  if (options.patience_ms < 0 || options.patience_ms > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrFormat("patience_ms %d is outside [0, %d]", options.patience_ms, INT32_MAX));
  }
  return absl::OkStatus();
}

absl::Status TakeDevice(const CudaApi& cuda, int device) {
  int devices = 0;
  const CudaResult counted = cuda.GetDeviceCount(&devices);
  if (counted != kCudaSuccess) return CudaError(cuda, "no GPU: cudaGetDeviceCount", counted);
  if (device < 0 || device >= devices) {
    return absl::UnavailableError(absl::StrFormat("no GPU %d: there are %d", device, devices));
  }
  const CudaResult set = cuda.SetDevice(device);
  if (set != kCudaSuccess) return CudaError(cuda, "cudaSetDevice", set);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclRuntime>> NcclRuntime::Open(NcclOptions options,
                                                               TransferPool& pool) {
  RETURN_IF_ERROR(CheckNcclOptions(options));
  const int64_t block_bytes = pool.layout().bytes_per_block();
  if (block_bytes > kMaxNcclBatchBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a block has %d bytes, the limit is %d", block_bytes, kMaxNcclBatchBytes));
  }
  options.batch_bytes = std::max(options.batch_bytes, block_bytes);
  ASSIGN_OR_RETURN(const CudaApi cuda, LoadCuda(options.cuda_libraries));
  RETURN_IF_ERROR(TakeDevice(cuda, options.device));
  ASSIGN_OR_RETURN(const NcclApi nccl, LoadNccl(options.nccl_libraries));
  ASSIGN_OR_RETURN(const int version, NcclVersionOf(nccl));
  std::unique_ptr<NcclRuntime> runtime(
      new NcclRuntime(std::move(options), pool, nccl, cuda, static_cast<uint32_t>(version)));
  const CudaResult made = cuda.StreamCreateWithFlags(&runtime->copies_, kCudaStreamNonBlocking);
  if (made != kCudaSuccess) return CudaError(cuda, "cudaStreamCreateWithFlags", made);
  return runtime;
}

NcclRuntime::~NcclRuntime() {
  Stop();
  if (copies_ != nullptr) cuda_.StreamDestroy(copies_);
}

void NcclRuntime::Start(std::function<void()> wake) {
  thread_ = std::make_unique<NcclThread>(
      nccl_, cuda_, options_.device,
      NcclCommunicators::Limits{.communicators = options_.max_communicators,
                                .slots = options_.window,
                                .slot_bytes = options_.batch_bytes},
      std::move(wake));
}

template <typename CopyRun>
absl::Status NcclRuntime::CopyBlocks(const GroupBlocks& blocks, int32_t valid_tokens,
                                     const CopyRun& copy_run) {
  CudaResult result = cuda_.SetDevice(options_.device);  // the device is set per thread
  if (result != kCudaSuccess) return CudaError(cuda_, "cudaSetDevice", result);
  int64_t done = 0;
  // Addresses for the copy engine only.
  const PieceBytes pieces(pool_.AddressForCopyEngine(), pool_.layout(),
                          LeadingTokens(blocks, valid_tokens), LayerRange{});
  for (const iovec& run : pieces.Runs()) {
    result = copy_run(static_cast<std::byte*>(run.iov_base), done, run.iov_len);
    if (result != kCudaSuccess) break;
    done += static_cast<int64_t>(run.iov_len);
  }
  // Also after an error: enqueued copies must end before this call returns.
  const CudaResult ended = cuda_.StreamSynchronize(copies_);
  if (result == kCudaSuccess) result = ended;
  return result == kCudaSuccess ? absl::OkStatus() : CudaError(cuda_, "cudaMemcpyAsync", result);
}

absl::Status NcclRuntime::Gather(const GroupBlocks& blocks, int32_t valid_tokens, std::byte* to) {
  return CopyBlocks(blocks, valid_tokens, [&](const std::byte* run, int64_t at, size_t bytes) {
    return cuda_.MemcpyAsync(to + at, run, bytes, kCudaCopyDefault, copies_);
  });
}

absl::Status NcclRuntime::Scatter(const std::byte* from, const GroupBlocks& blocks,
                                  int32_t valid_tokens) {
  return CopyBlocks(blocks, valid_tokens, [&](std::byte* run, int64_t at, size_t bytes) {
    return cuda_.MemcpyAsync(run, from + at, bytes, kCudaCopyDefault, copies_);
  });
}

void NcclRuntime::ReportFallback(const absl::Status& why) {
  if (reported_.insert(why.code()).second) TellFallback(options_, why);
}

void TellFallback(const NcclOptions& options, const absl::Status& why) {
  if (options.on_fallback) return options.on_fallback(why);
  LOG(WARNING) << "KV goes by TCP, not by NCCL: " << why;
}

}  // namespace baton
