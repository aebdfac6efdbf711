// Moving KV blocks from the pool of one worker into the pool of another: Register → Post → Poll →
// Release.
//
// A transfer carries blocks [first_block, last] of one sequence, counted in the sequence's own
// block order, and at the end a manifest (opaque to this folder: first token, sampler state). It is
// pulled: the sender announces blocks as they are computed, the receiver asks for what it lacks,
// bytes land in blocks that nothing reads yet, every piece's CRC32C and identity are verified, and
// only then does an event publish them.
//
// The two pools may differ in block size and layout, and in nothing else (fingerprint.h). Each side
// counts in its own blocks. What travels are whole blocks of the sender, from the one that has the
// first missing token; the receiver's landing scatters their tokens over its blocks, leaves out
// those that it has, and reports a block as done when all its tokens are (transfer_plan.h). NCCL
// moves blocks of one size alone, whatever their layouts: between others the payload goes by TCP.
//
// A model with sliding windows has several KV groups (cache/kv_cache_spec.h). The unit of a
// transfer stays the sequence's block, which has the same tokens in every group. A block carries
// group 0 always, and a window group where it has tokens that the receiver lacks of it and that the
// token behind the sequence's end sees (MovedTokens in transfer_plan.h). Layers are the model's.
// The sender's blocks must have at least the size of the receiver's.
//
// Where blocks of the pool are named, they are rows [block of the sequence][KV group], flat, so
// their number is that of the blocks times that of the groups. kNoBlock stands where the group does
// not travel with the block. For a model with one group these are its blocks.
//
// Transfers overlap with the computing of what they carry. Blocks that are whole go while later
// chunks of the prompt are computed (Announce); of the last chunk, the first layers of all its
// blocks go while the layers behind them are computed (AnnounceLayers, pull_order.h). So what is
// left when the prompt is computed is at most the last part. A part is a block or a layer range of
// one: its frame names it and carries a CRC32C for each of its pieces (pool/pieces.h), and it is
// verified by itself when it lands. A block is done, and counted in events, when its last layer is:
// a sender that gives up in between (cancelled, preempted, failed) leaves a block that nobody was
// told of. Slices go to receivers that said they take them (transfer_frame.h, TakesLayers), not
// over NCCL; others have the whole blocks at the end.
//
//   receiver: Expect → events kReceiving* → kReceived | kReceiveFailed
//   sender:   StartSend → Announce* (the last with `final`) → kSent | kSendFailed
//
// Rules:
//  1. Posts never block. Whatever takes time is reported by Poll.
//  2. The blocks named in a post belong to the transport (read-only at the sender, write-only at
//     the receiver) until the terminal event of that transfer has been polled: kReceived,
//     kReceiveFailed, kSent or kSendFailed. After it no thread of the transport touches them.
//     Cancel only hastens that event.
//  3. Exactly one terminal event per successful post, whatever the peer does, at the latest shortly
//     after the deadline; no new work is needed for it.
//  4. Anything that names another epoch, an unknown transfer, other tokens, other first blocks of
//     a window, a block or a layer out of range, or carries a wrong CRC fails the transfer (or the
//     connection), never the process, and never publishes a byte.
//
// Thread safety: posts and Poll are called from the engine thread; the waker is called from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// What a decode worker hands out (through the router) so that a prefill worker can deliver.
struct TransferTicket {
  uint64_t transfer_id = 0;  // unique within the receiver's epoch, and not to be guessed
  Epoch receiver_epoch{0};
  // Ways to the receiver, the best first: "shm:NAME,tcp:HOST:PORT", or one of these, or
  // "loopback:NAME". The sender takes the first that it can open.
  std::string address;
  int32_t first_block = 0;  // first block the receiver lacks, in sequence order
  int32_t block_count = 0;  // blocks it expects from there to the prompt's end
  int32_t block_size = 0;   // tokens of these blocks, the receiver's; 0: as the sender's
  // Of KV groups 1, 2, ...: the first block that the receiver lacks, in the same blocks, counted
  // from the sequence's begin too. In [first_block, first_block + block_count].
  std::vector<int32_t> window_first_blocks = {};
  int64_t timeout_ms = 0;  // from now; how long the receiver waits for the whole
};

struct ReceiveSpec {
  uint64_t transfer_id = 0;
  int32_t first_block = 0;
  std::vector<int32_t> window_first_blocks = {};  // as in TransferTicket
  std::vector<BlockId> blocks;  // rows: where block first_block + i of the sequence lands
  int32_t tokens = 0;  // slots the sequence's prompt fills; the last block may be part full
  int64_t timeout_ms = 30'000;
  // The sender may have fewer blocks than are asked for: its final announcement says how many, and
  // with these the transfer is complete. Both sides agree on it beforehand.
  bool may_end_early = false;
};

struct SendSpec {
  uint64_t sender_transfer = 0;  // the sender's own id, used in its events; unique while it lives
  TransferTicket ticket;
  int32_t tokens = 0;  // as in ReceiveSpec
  int64_t timeout_ms = 30'000;
  bool may_end_early = false;  // as in ReceiveSpec
  int32_t priority = 0;        // among what goes to the same receiver, higher first (send_queue.h)
};

struct TransferEvent {
  enum class Kind : uint8_t {
    kReceiving,      // some blocks landed and were verified; `blocks_done` so far
    kReceived,       // all that the sender had did; `manifest` is valid
    kReceiveFailed,  // `status` says why
    kSent,           // the receiver acknowledged everything
    kSendFailed,
  };
  Kind kind;
  uint64_t id = 0;          // transfer_id or sender_transfer
  int32_t blocks_done = 0;  // own leading blocks of the transfer; verified, at a receiver
  std::string manifest;
  absl::Status status;
  int64_t bytes = 0;    // payload moved so far
  int64_t busy_us = 0;  // time between first request and last byte, pauses for compute excluded
  // kSent: what of the transfer was left when the last of its blocks was computed: from the final
  // announcement until the receiver had everything, or, where it has another clock, had said so.
  int64_t exposed_us = 0;
};

inline constexpr size_t kMaxManifestBytes = 1 << 20;

class KvTransport {
 public:
  virtual ~KvTransport() = default;

  // Where a sender reaches this transport's receiver.
  virtual std::string address() const = 0;
  virtual Epoch epoch() const = 0;

  // Receiver. AlreadyExists, InvalidArgument (counts that do not fit the pool), ResourceExhausted
  // (too many transfers).
  virtual absl::Status Expect(ReceiveSpec spec) = 0;
  virtual void CancelReceive(uint64_t transfer_id) = 0;

  // Sender. InvalidArgument names a bad address or ticket field. Connecting happens behind the
  // post.
  virtual absl::Status StartSend(SendSpec spec) = 0;
  // The next blocks of SenderBlocks (transfer_plan.h), which begin at first_block where block sizes
  // are equal, are computed and lie in the rows `blocks`. With `final`, no more follow and
  // `manifest` completes the hand-off.
  virtual void Announce(uint64_t sender_transfer, std::span<const BlockId> blocks, bool final,
                        std::string manifest) = 0;
  // Of all blocks that are left, rows `rest` up to the transfer's end, the first `layers` layers
  // are computed; the other layers may still be written. From then on only this, with more layers,
  // and Announce of the same blocks follow. Not for a transfer that may end early.
  virtual void AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                              int32_t layers) = 0;
  virtual void CancelSend(uint64_t sender_transfer) = 0;

  // The engine wrote to these blocks of KV group `group`. Blocks in `full` do not change until they
  // are reported again or a transfer lands in them. Blocks in `part` may change at any time. The
  // caller reports every write before it announces the blocks, so a transport may keep the
  // checksums of full ones.
  virtual void Written(std::span<const BlockId> /*full*/, std::span<const BlockId> /*part*/,
                       int32_t /*group*/) {}

  // Events since the last call, in order per transfer.
  virtual std::vector<TransferEvent> Poll() = 0;
};

struct TransportOptions {
  KvFingerprint fingerprint;
  Epoch epoch{0};
  TransferPool* pool = nullptr;  // what is read from and written into; outlives the transport
  std::function<void()> waker;   // called when Poll has something; must not block
  int32_t max_transfers = 1024;
};

}  // namespace baton
