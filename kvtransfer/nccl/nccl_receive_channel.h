// State machine at the receiver's end of a connection for payload over NCCL (protocol in
// nccl_send_channel.h). It makes offers, receives batches and acknowledges landed ones.
//
// A batch without a wanted block is still received, because the sender's operation waits for the
// receiver. Its bytes are discarded.
//
// Pure: frames, reports and time go in; frames, landed batches and posts to the driver come out.
//
// Invariants: landed <= ended <= received; received - landed never exceeds the window.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/nccl/nccl_driver.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/transport.h"

namespace baton {

class NcclReceiveChannel {
 public:
  // A batch in staging memory, its blocks' payloads one after the other. The bytes stay valid until
  // TakeFrames is called again, because its frames tell the sender that the slot is free.
  struct Arrival {
    std::vector<BlockFrame> blocks;
    std::byte* staged = nullptr;
    std::shared_ptr<const void> keep = nullptr;  // of the slot's memory
  };

  // All arguments outlive this. `block_bytes` is the size of a whole block, and `least_bytes` that
  // of the smallest payload: 0 if a slice of some layers may have none of the KV groups that
  // travel.
  NcclReceiveChannel(PeerId peer, const NcclOptions& options, uint32_t nccl_version,
                     int64_t least_bytes, int64_t block_bytes, NcclDriver& driver)
      : peer_(peer),
        options_(options),
        nccl_version_(nccl_version),
        least_bytes_(least_bytes),
        block_bytes_(block_bytes),
        driver_(driver) {}
  ~NcclReceiveChannel();

  // Offers NCCL. Called when the handshake has succeeded and the peer may use NCCL.
  void Offer();
  // Handles Join, Batch or Stop. An error ends the connection.
  absl::Status OnFrame(Frame frame, int64_t now_us);
  // Handles a report. Returns the batch that arrived with it, if any. The caller must land it now.
  std::optional<Arrival> OnReport(const NcclReport& report, int64_t now_us);
  void OnTimer(int64_t now_us);
  int64_t NextTimerUs() const;  // INT64_MAX: never

  std::vector<Frame> TakeFrames() { return std::exchange(frames_, {}); }
  std::vector<absl::Status> TakeFallbacks() { return std::exchange(fallbacks_, {}); }

 private:
  enum class Phase : uint8_t { kNone, kOffered, kCreating, kOpen, kDraining };
  struct Batch {
    std::vector<BlockFrame> blocks;
    bool wanted = true;  // false once the sender has taken it back
  };

  absl::Status OnJoin(const NcclJoinFrame& join, int64_t now_us);
  absl::Status OnBatch(NcclBatchFrame batch);
  absl::Status OnStop(const NcclStopFrame& stop, int64_t now_us);
  std::optional<Arrival> OnDone();
  absl::StatusOr<int64_t> BatchBytes(const NcclBatchFrame& batch) const;
  void Close(const absl::Status& why, int64_t now_us);
  void SendStop(bool closed, absl::StatusCode code, std::string reason);
  void AbortCommunicator();

  const PeerId peer_;
  const NcclOptions& options_;
  const uint32_t nccl_version_;
  const int64_t least_bytes_;
  const int64_t block_bytes_;
  NcclDriver& driver_;

  Phase phase_ = Phase::kNone;
  // This side aborted the communicator. Batches are ignored, because the sender may not know yet.
  bool gave_up_ = false;
  uint32_t attempts_ = 0;
  std::optional<NcclCommId> comm_;
  std::vector<std::byte*> slots_;
  std::shared_ptr<const void> keep_;
  int64_t deadline_us_ = 0;  // for creation
  int64_t retry_us_ = 0;     // when to offer again; 0: never

  uint64_t received_ = 0;      // batches announced
  uint64_t ended_ = 0;         // batches with an ended operation on this side
  uint64_t landed_ = 0;        // as acknowledged to the sender
  std::deque<Batch> batches_;  // from batch ended_ on
  std::vector<Frame> frames_;
  std::vector<absl::Status> fallbacks_;
};

}  // namespace baton
