// A transport's NCCL resources: the libraries, the thread that calls NCCL, and the copies between a
// host pool and staging memory.
//
// NCCL never accesses the pool. The sender gathers a batch of blocks into staging memory, and NCCL
// sends it from there. The receiver gets it in staging memory, and scatters it into blocks that
// nothing reads yet. So a transfer may end at any time without waiting for NCCL, and a late batch
// writes to staging memory only.
//
// Staging memory is device memory. There are three kinds of pools:
//  - A pool in device memory makes the copies itself (kvtransfer/pool/device_block_copies.h).
//  - For a host pool, the device's copy engine makes the copies by address. They end within the
//    call, on the I/O thread.
//  - A pool that is divided among several devices makes the copies itself if all devices can reach
//    the first one's memory. Otherwise its bytes go through leases of its staging memory on the
//    host.
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
  // InvalidArgument names an option. Unimplemented: a pool in device memory without block copies.
  // Other errors are those of LoadCudaDriver and LoadNccl, and Unavailable if the device does not
  // exist.
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

  // Copies the blocks' valid tokens in these layers to `to`, piece after piece, or from `from` into
  // the blocks. REQUIRES: a host pool.
  absl::Status Gather(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                      std::byte* to);
  absl::Status Scatter(const std::byte* from, const GroupBlocks& blocks, int32_t valid_tokens,
                       LayerRange layers);
  // The same for a divided pool. `pieces`: those of a lease. Land returns the checksums of the
  // pieces that it has stored. Unavailable: all staging buffers are in use.
  absl::Status Gather(const PieceBytes& pieces, std::byte* to);
  absl::StatusOr<std::vector<uint32_t>> Land(const std::byte* from, const GroupBlocks& blocks,
                                             int32_t valid_tokens, LayerRange layers);

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
  absl::Status Scatter(const std::byte* from, const PieceBytes& pieces);
  PieceBytes InPool(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers) const;

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
