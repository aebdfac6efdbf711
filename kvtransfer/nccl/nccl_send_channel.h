// How the sender's end of a connection moves blocks: by NCCL, within the TCP stream, or not yet.
//
//   receiver                          sender
//   Offer ──────────────────────────▶ makes rank 0
//   makes rank 1 ◀─────────────────── Join
//   Ready ──────────────────────────▶ open
//         ◀─────────────────────────  Batch 0, Batch 1 …, each beside an ncclSend
//   Landed ─────────────────────────▶
//         ◀──────────────────── Stop, when a batch is late or the communicator fails
//   Stop (so many landed) ──────────▶ sends what did not land within the stream
//   Ready (when all has drained) ───▶ open again
//
// One communicator serves all transfers of the connection. It has one direction: were two
// connections to share one, each side's receive could wait behind its own send. It is never ended
// for a transfer's sake, nor because a batch is late: batches then pause, what they had not
// delivered goes within the stream, and once both sides have seen every operation end, batches go
// on. It is aborted when the connection ends (the peer is gone), when NCCL says that it is broken,
// or when it was not made in time; the receiver may offer again. Blocks of a transfer never
// overtake each other: none goes within the stream while one that went before is under way.
//
// Pure: frames, reports and time in; frames and posts to the driver out.
//
// Invariants: landed <= next, ended <= next; next - landed and next - ended never exceed the
// window.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
    kStream,  // as ever, those of TakeUnlanded first
    kBatch,   // in a batch, when FreeSlot() has room
    kWait,
  };

  // All outlive this. `block_bytes`: of a whole block.
  NcclSendChannel(PeerId peer, const NcclOptions& options, uint32_t nccl_version,
                  int64_t block_bytes, NcclDriver& driver)
      : peer_(peer),
        options_(options),
        nccl_version_(nccl_version),
        block_bytes_(block_bytes),
        driver_(driver) {}
  ~NcclSendChannel();

  // Offer, Ready, Landed or Stop. An error ends the connection.
  absl::Status OnFrame(const Frame& frame, int64_t now_us);
  void OnReport(const NcclReport& report, int64_t now_us);
  void OnTimer(int64_t now_us);
  int64_t NextTimerUs() const;  // INT64_MAX: never

  Way way() const;
  // Where the next batch is gathered; null when the window is full. REQUIRES: way() is kBatch.
  std::byte* FreeSlot() const;
  int64_t batch_bytes() const { return batch_bytes_; }
  // The blocks lie one behind the other in FreeSlot(), and their frames have their CRCs.
  void StartBatch(std::vector<BlockDispatch> blocks, int64_t bytes, int64_t now_us);
  // This one was to go into a batch, and none is to be had for it any more: it goes within the
  // stream, behind those that did not land.
  void TakeBack(BlockDispatch block);
  // These were to go into a batch and could not be gathered: the communicator is given up.
  void OnGatherFailed(std::vector<BlockDispatch> blocks, const absl::Status& why);

  bool HasUnlanded() const { return !unlanded_.empty(); }
  // Blocks to send within the stream, in order, and before any other.
  std::optional<BlockDispatch> TakeUnlanded();
  // Blocks that landed.
  std::vector<BlockDispatch> TakeLanded() { return std::exchange(landed_blocks_, {}); }
  std::vector<Frame> TakeFrames() { return std::exchange(frames_, {}); }
  // Why blocks go within the stream, since the last call.
  std::vector<absl::Status> TakeFallbacks() { return std::exchange(fallbacks_, {}); }

 private:
  enum class Phase : uint8_t {
    kNone,
    kCreating,
    kOpen,
    kStopping,  // the receiver has not said yet what landed
    kDraining,  // stopped for now: operations are under way
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
  // The communicator is of no use any more.
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
  uint32_t attempts_ = 0;
  std::optional<NcclCommId> comm_;  // set from its creation until it is aborted
  std::vector<std::byte*> slots_;   // once this side is ready
  bool peer_ready_ = false;
  int32_t window_ = 0;
  int64_t batch_bytes_ = 0;
  int64_t patient_until_us_ = 0;  // 0: blocks do not wait
  int64_t deadline_us_ = 0;       // of creating, or of the oldest batch that has not landed

  uint64_t next_ = 0;          // sequence of the next batch
  uint64_t ended_ = 0;         // operations that have ended on this side
  uint64_t landed_ = 0;        // batches that landed, or were taken back
  std::deque<Batch> batches_;  // from landed_ on; behind them, one that was never sent
  std::deque<BlockDispatch> unlanded_;
  std::vector<BlockDispatch> landed_blocks_;
  std::vector<Frame> frames_;
  std::vector<absl::Status> fallbacks_;
};

}  // namespace baton
