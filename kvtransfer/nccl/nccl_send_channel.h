// State machine at the sender's end of a connection for payload over NCCL. It decides how blocks
// move: over NCCL, within the TCP stream, or not yet.
//
//   receiver                          sender
//   Offer ──────────────────────────▶ creates rank 0
//   creates rank 1 ◀───────────────── Join
//   Ready ──────────────────────────▶ open
//         ◀─────────────────────────  Batch 0, Batch 1 …, each beside an ncclSend
//   Landed ─────────────────────────▶
//         ◀──────────────────── Stop, when a batch is late or the communicator fails
//   Stop (landed count) ────────────▶ sends the rest within the stream
//   Ready (when all has drained) ───▶ open again
//
// One communicator serves all transfers of the connection, in one direction. If two connections
// shared a communicator, each side's receive could wait behind its own send.
//
// A late batch, or the end of a transfer, does not end the communicator. If a batch is late,
// batches pause, and blocks that have not landed go within the stream. Batches continue when every
// operation has ended on both sides. The communicator is aborted in these cases:
//  - The connection ends, because the peer is gone.
//  - NCCL reports that the communicator is broken.
//  - It was not created in time. The receiver may then offer again.
//  - Blocks could not be gathered for a batch.
//
// Blocks of a transfer never overtake each other. While an earlier block is in flight over NCCL, no
// block goes within the stream.
//
// Pure: frames, reports and time go in; frames and posts to the driver come out.
//
// Invariants: landed <= next, ended <= next; next - landed and next - ended never exceed the
// window.
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
#include "kvtransfer/protocol/send_session.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/transport.h"

namespace baton {

class NcclSendChannel {
 public:
  enum class Way : uint8_t {
    kStream,  // within the TCP stream, blocks of TakeUnlanded first
    kBatch,   // in a batch, if FreeSlot() has room
    kWait,
  };

  // All arguments outlive this. `block_bytes` is the size of a whole block.
  NcclSendChannel(PeerId peer, const NcclOptions& options, uint32_t nccl_version,
                  int64_t block_bytes, NcclDriver& driver)
      : peer_(peer),
        options_(options),
        nccl_version_(nccl_version),
        block_bytes_(block_bytes),
        driver_(driver) {}
  ~NcclSendChannel();

  // Handles Offer, Ready, Landed or Stop. An error ends the connection.
  absl::Status OnFrame(const Frame& frame, int64_t now_us);
  void OnReport(const NcclReport& report, int64_t now_us);
  void OnTimer(int64_t now_us);
  int64_t NextTimerUs() const;  // INT64_MAX: never

  // True once the receiver has offered NCCL. A receiver offers it right after the handshake.
  bool offered() const { return offered_; }
  Way way() const;
  // Returns the slot in which to gather the next batch; null if the window is full. REQUIRES: way()
  // is kBatch.
  std::byte* FreeSlot() const;
  // Keeps the memory of the slots (NcclReport::keep).
  const std::shared_ptr<const void>& keep() const { return keep_; }
  int64_t batch_bytes() const { return batch_bytes_; }
  // Sends a batch. REQUIRES: the payloads are in FreeSlot(), one after the other, and the frames
  // have their CRCs.
  void StartBatch(std::vector<BlockDispatch> blocks, int64_t bytes, int64_t now_us);
  // Takes a block that was meant for a batch when batches have stopped. It goes within the stream,
  // behind those that did not land.
  void TakeBack(BlockDispatch block);
  // Takes blocks that could not be gathered for a batch. The communicator is aborted.
  void OnGatherFailed(std::vector<BlockDispatch> blocks, const absl::Status& why);

  bool HasUnlanded() const { return !unlanded_.empty(); }
  // Returns blocks to send within the stream, in order, before any other block.
  std::optional<BlockDispatch> TakeUnlanded();
  // Returns blocks that landed.
  std::vector<BlockDispatch> TakeLanded() { return std::exchange(landed_blocks_, {}); }
  std::vector<Frame> TakeFrames() { return std::exchange(frames_, {}); }
  // Returns the reasons, since the last call, why blocks go within the stream.
  std::vector<absl::Status> TakeFallbacks() { return std::exchange(fallbacks_, {}); }

 private:
  enum class Phase : uint8_t {
    kNone,
    kCreating,
    kOpen,
    kStopping,  // waits for the receiver's report of what landed
    kDraining,  // paused; operations are in flight
  };
  struct Batch {
    std::vector<BlockDispatch> blocks;
  };

  absl::Status OnOffer(const NcclOfferFrame& offer, int64_t now_us);
  absl::Status OnReady();
  absl::Status OnLanded(uint64_t batches, int64_t now_us);
  absl::Status OnStop(const NcclStopFrame& stop);
  void OpenIfBothAreReady();
  void Stop(bool closed, const absl::Status& why);
  // Aborts the communicator and tells the receiver.
  void Close(const absl::Status& why);
  void AbortCommunicator();
  void Land(uint64_t batches);
  void FallBack(const absl::Status& why) { fallbacks_.push_back(why); }

  const PeerId peer_;
  const NcclOptions& options_;
  const uint32_t nccl_version_;
  const int64_t block_bytes_;
  NcclDriver& driver_;

  Phase phase_ = Phase::kNone;
  bool offered_ = false;
  uint32_t attempts_ = 0;
  std::optional<NcclCommId> comm_;  // set from its creation until it is aborted
  std::vector<std::byte*> slots_;   // set once this side is ready
  std::shared_ptr<const void> keep_;
  bool peer_ready_ = false;
  int32_t window_ = 0;
  int64_t batch_bytes_ = 0;
  int64_t patient_until_us_ = 0;  // 0: blocks do not wait
  int64_t deadline_us_ = 0;       // for creation, or for the oldest batch that has not landed

  uint64_t next_ = 0;          // sequence number of the next batch
  uint64_t ended_ = 0;         // operations that have ended on this side
  uint64_t landed_ = 0;        // batches that landed or were taken back
  std::deque<Batch> batches_;  // from batch landed_ on; then blocks that were never sent
  std::deque<BlockDispatch> unlanded_;
  std::vector<BlockDispatch> landed_blocks_;
  std::vector<Frame> frames_;
  std::vector<absl::Status> fallbacks_;
};

}  // namespace baton
