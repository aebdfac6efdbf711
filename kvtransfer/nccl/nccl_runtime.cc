#include "kvtransfer/nccl/nccl_runtime.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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

// Errors are Unavailable: payload then goes over TCP.
absl::StatusOr<std::shared_ptr<CudaContext>> OpenGpu(const NcclOptions& options) {
  ASSIGN_OR_RETURN(const CudaDriver driver, LoadCudaDriver(options.cuda_libraries));
  absl::StatusOr<std::shared_ptr<CudaContext>> context = CudaContext::Open(driver, options.device);
  if (context.ok()) return context;
  return absl::UnavailableError(absl::StrCat("no GPU: ", context.status().message()));
}

// Copies between a pool and its staging memory end within microseconds.
absl::Status WaitFor(PoolLease& lease) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool ready, lease.Ready());
    if (ready) return absl::OkStatus();
    sched_yield();
  }
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
  if (pool.memory() == PoolMemory::kDevice && pool.block_copies() == nullptr &&
      pool.AddressForCopyEngine() != nullptr) {
    return absl::UnimplementedError("this pool has no copies to other memory of its device");
  }
  options.batch_bytes = std::max(options.batch_bytes, block_bytes);
  ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context, OpenGpu(options));
  ASSIGN_OR_RETURN(const NcclApi nccl, LoadNccl(options.nccl_libraries));
  ASSIGN_OR_RETURN(const int version, NcclVersionOf(nccl));
  std::unique_ptr<NcclRuntime> runtime(
      new NcclRuntime(std::move(options), pool, nccl, context, static_cast<uint32_t>(version)));
  const CudaDriver& cuda = context->Enter();
  const CuResult made = cuda.StreamCreate(&runtime->copies_, kCuStreamNonBlocking);
  if (made != kCuSuccess) return NcclCudaError(cuda, "cuStreamCreate", made);
  return runtime;
}

NcclRuntime::~NcclRuntime() {
  Stop();
  if (copies_ != nullptr) context_->Enter().StreamDestroy(copies_);
}

void NcclRuntime::Start(std::function<void()> wake) {
  thread_ = std::make_unique<NcclThread>(
      nccl_, context_,
      NcclCommunicators::Limits{.communicators = options_.max_communicators,
                                .slots = options_.window,
                                .slot_bytes = options_.batch_bytes},
      std::move(wake));
}

template <typename CopyRun>
absl::Status NcclRuntime::CopyPieces(const PieceBytes& pieces, const CopyRun& copy_run) {
  const CudaDriver& cuda = context_->Enter();
  CuResult result = kCuSuccess;
  int64_t done = 0;
  for (const iovec& run : pieces.Runs()) {
    result = copy_run(cuda, static_cast<std::byte*>(run.iov_base), done, run.iov_len);
    if (result != kCuSuccess) break;
    done += static_cast<int64_t>(run.iov_len);
  }
  // Also after an error: enqueued copies must end before this call returns.
  const CuResult ended = cuda.StreamSynchronize(copies_);
  if (result == kCuSuccess) result = ended;
  return result == kCuSuccess ? absl::OkStatus() : NcclCudaError(cuda, "cuMemcpyAsync", result);
}

absl::Status NcclRuntime::Gather(const PieceBytes& pieces, std::byte* to) {
  return CopyPieces(
      pieces, [&](const CudaDriver& cuda, const std::byte* run, int64_t at, size_t bytes) {
        return cuda.MemcpyAsync(reinterpret_cast<CuDevicePointer>(to + at),
                                reinterpret_cast<CuDevicePointer>(run), bytes, copies_);
      });
}

absl::Status NcclRuntime::Scatter(const std::byte* from, const PieceBytes& pieces) {
  return CopyPieces(pieces, [&](const CudaDriver& cuda, std::byte* run, int64_t at, size_t bytes) {
    return cuda.MemcpyAsync(reinterpret_cast<CuDevicePointer>(run),
                            reinterpret_cast<CuDevicePointer>(from + at), bytes, copies_);
  });
}

PieceBytes NcclRuntime::InPool(const GroupBlocks& blocks, int32_t valid_tokens,
                               LayerRange layers) const {
  CHECK(pool_.memory() == PoolMemory::kHost);
  // Addresses for the copy engine only.
  return PieceBytes(pool_.AddressForCopyEngine(), pool_.layout(),
                    LeadingTokens(blocks, valid_tokens), layers);
}

absl::Status NcclRuntime::Gather(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                                 std::byte* to) {
  return Gather(InPool(blocks, valid_tokens, layers), to);
}

absl::Status NcclRuntime::Scatter(const std::byte* from, const GroupBlocks& blocks,
                                  int32_t valid_tokens, LayerRange layers) {
  return Scatter(from, InPool(blocks, valid_tokens, layers));
}

absl::StatusOr<std::vector<uint32_t>> NcclRuntime::Land(const std::byte* from,
                                                        const GroupBlocks& blocks,
                                                        int32_t valid_tokens, LayerRange layers) {
  std::optional<PoolLease> lease =
      pool_.Acquire(PoolAccess::kLand, LeadingTokens(blocks, valid_tokens), layers);
  if (!lease.has_value()) {
    return absl::UnavailableError("all staging buffers of the KV pool are in use");
  }
  RETURN_IF_ERROR(WaitFor(*lease));
  RETURN_IF_ERROR(Scatter(from, lease->bytes()));
  std::vector<uint32_t> checksums = lease->bytes().Checksums();
  lease->Store();
  RETURN_IF_ERROR(WaitFor(*lease));
  return checksums;
}

void NcclRuntime::ReportFallback(const absl::Status& why) {
  if (reported_.insert(why.code()).second) TellFallback(options_, why);
}

void TellFallback(const NcclOptions& options, const absl::Status& why) {
  if (options.on_fallback) return options.on_fallback(why);
  LOG(WARNING) << "KV goes by TCP, not by NCCL: " << why;
}

}  // namespace baton
