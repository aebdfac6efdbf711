// A transport's NCCL resources: the libraries, the thread that calls NCCL, and the copies between
// the pool and staging memory.
//
// NCCL never accesses the pool. A batch of blocks is gathered into staging memory, sent and
// received from there, and scattered into blocks that nothing reads yet. The device's copy engine
// makes these copies by address, in host or device memory; this code dereferences no address.
//
// A pool that is divided among several devices has no such address. Its bytes go through a lease of
// the pool's pinned staging memory. If no lease is free, the batch goes over TCP.
//
// Both copies end within the call, on the I/O thread. So a transfer may end at any time without
// waiting for NCCL, and a late batch writes to staging memory only. The price: a device that never
// finishes a copy blocks the I/O thread. A copy into the pool cannot be undone, and the engine gets
// the blocks back only after the copy ends.
//
// Thread safety: belongs to the I/O thread, except Open and the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/strong_int.h"
#include "kernels/cuda/nccl_api.h"
#include "kvtransfer/nccl/nccl_driver.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_thread.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class NcclRuntime {
 public:
  // Loads the libraries and claims the device, which may take long. `pool` outlives this.
  // InvalidArgument names an option. Other errors are those of LoadCudaDriver and LoadNccl, and
  // Unavailable if the device does not exist.
  static absl::StatusOr<std::unique_ptr<NcclRuntime>> Open(NcclOptions options, TransferPool& pool);
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  // Starts the thread. REQUIRES: called before driver(). `wake` as in NcclThread.
  void Start(std::function<void()> wake);
  // Ends the thread. driver() must not be used after it.
  void Stop() { thread_.reset(); }

  const NcclOptions& options() const { return options_; }  // batch_bytes is at least one block
  uint32_t version() const { return version_; }
  NcclDriver& driver() { return *thread_; }
  std::vector<NcclReport> TakeReports() { return thread_->TakeReports(); }

  // Copies the blocks' valid tokens to `to`, piece after piece, or from `from` into the blocks.
  absl::Status Gather(const GroupBlocks& blocks, int32_t valid_tokens, std::byte* to);
  absl::Status Scatter(const std::byte* from, const GroupBlocks& blocks, int32_t valid_tokens);

  // Reports why payload goes over TCP.
  void ReportFallback(const absl::Status& why);

 private:
  NcclRuntime(NcclOptions options, TransferPool& pool, const NcclApi& nccl,
              std::shared_ptr<CudaContext> context, uint32_t version)
      : options_(std::move(options)),
        pool_(pool),
        nccl_(nccl),
        context_(std::move(context)),
        version_(version) {}
  // Makes one memory copy for each contiguous run of `pieces`.
  template <typename CopyRun>
  absl::Status CopyPieces(const PieceBytes& pieces, const CopyRun& copy_run);
  absl::Status GatherPieces(const PieceBytes& pieces, std::byte* to);
  absl::Status ScatterPieces(const std::byte* from, const PieceBytes& pieces);

  const NcclOptions options_;
  TransferPool& pool_;
  const NcclApi nccl_;
  const std::shared_ptr<CudaContext> context_;
  const uint32_t version_;
  CuStream copies_ = nullptr;
  std::set<absl::StatusCode> reported_;
  std::unique_ptr<NcclThread> thread_;
};

// Passes the reason why payload goes over TCP to `options.on_fallback`, or logs it.
void TellFallback(const NcclOptions& options, const absl::Status& why);

}  // namespace baton
