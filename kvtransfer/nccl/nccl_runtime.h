// What a transport has for payload over NCCL: the libraries, the thread that calls NCCL, and the
// copies between the pool and staging memory.
//
// NCCL never sees the pool: a batch of blocks is gathered into staging memory, sent and received
// from there, and scattered into blocks that nothing reads yet. The device's copy engine does that
// by address, be the pool in host or device memory; this code dereferences none. Both copies end
// within the call, on the I/O thread, so a transfer may end at any time without waiting for NCCL,
// and a batch that is late writes to staging memory alone. A device that never finishes a copy
// holds up that thread: a copy into the pool cannot be taken back, and the blocks are not the
// engine's again before it ends.
//
// Thread safety: belongs to the I/O thread, but for Open and the constructor.
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
#include "kvtransfer/nccl/nccl_api.h"
#include "kvtransfer/nccl/nccl_driver.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_thread.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class NcclRuntime {
 public:
  // `pool` outlives this. Loads the libraries and takes the device, which may take long.
  // InvalidArgument names an option; otherwise as LoadCuda and LoadNccl, and Unavailable when there
  // is no such device.
  static absl::StatusOr<std::unique_ptr<NcclRuntime>> Open(NcclOptions options, TransferPool& pool);
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  // Before anything is driven. `wake` as NcclThread's.
  void Start(std::function<void()> wake);
  // Ends the thread; nothing is driven after it.
  void Stop() { thread_.reset(); }

  const NcclOptions& options() const { return options_; }  // batch_bytes holds a block
  uint32_t version() const { return version_; }
  NcclDriver& driver() { return *thread_; }
  std::vector<NcclReport> TakeReports() { return thread_->TakeReports(); }

  // The blocks' valid tokens to `to`, piece behind piece, or from there into the blocks.
  absl::Status Gather(const GroupBlocks& blocks, int32_t valid_tokens, std::byte* to);
  absl::Status Scatter(const std::byte* from, const GroupBlocks& blocks, int32_t valid_tokens);

  // Payload goes by TCP, for this reason.
  void ReportFallback(const absl::Status& why);

 private:
  NcclRuntime(NcclOptions options, TransferPool& pool, const NcclApi& nccl, const CudaApi& cuda,
              uint32_t version)
      : options_(std::move(options)), pool_(pool), nccl_(nccl), cuda_(cuda), version_(version) {}
  // One memory copy for each run of the blocks.
  template <typename CopyRun>
  absl::Status CopyBlocks(const GroupBlocks& blocks, int32_t valid_tokens, const CopyRun& copy_run);

  const NcclOptions options_;
  TransferPool& pool_;
  const NcclApi nccl_;
  const CudaApi cuda_;
  const uint32_t version_;
  CudaStream copies_ = nullptr;
  std::set<absl::StatusCode> reported_;
  std::unique_ptr<NcclThread> thread_;
};

// Tells `options` why payload goes by TCP.
void TellFallback(const NcclOptions& options, const absl::Status& why);

}  // namespace baton
