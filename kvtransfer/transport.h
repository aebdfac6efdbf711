// Interface that moves KV blocks from one worker's pool into another worker's pool: Register → Post
// → Poll → Release.
//
// A transfer carries blocks [first_block, last] of one sequence, counted in sequence order, and at
// the end a manifest. The manifest is opaque to this folder (first token, sampler state). The
// receiver pulls:
//
//  1. The sender announces blocks as they are computed.
//  2. The receiver asks for the blocks that it lacks.
//  3. The bytes land in blocks that nothing reads yet.
//  4. The receiver verifies identity and CRC32C of every piece.
//  5. Only then an event publishes the blocks.
//
// Block size. The two pools may differ in block size and layout, and in nothing else
// (fingerprint.h). Each side counts in its own blocks. The sender's whole blocks travel, from the
// block that holds the first missing token on. The receiver scatters their tokens over its own
// blocks and drops tokens that it already has. It reports a block as done when all its tokens have
// landed (transfer_plan.h). NCCL moves blocks only between pools of equal block size, whatever
// their layouts. Between other pools the payload goes over TCP.
//
// KV groups. A model with sliding windows has several KV groups (cache/kv_cache_spec.h). The unit
// of a transfer is still the sequence's block, which has the same tokens in every group. A block
// always carries group 0. It carries a window group if it has tokens of that group that the
// receiver lacks and still needs. Needed are the tokens that the token behind the sequence's end
// sees (MovedTokens in transfer_plan.h). Layer numbers count the model's layers. With several
// groups, the sender's blocks must be at least as large as the receiver's.
//
// Rows. Block ids of the pool are passed as rows [block of the sequence][KV group], flattened. So
// the number of ids is blocks × groups. kNoBlock means that the group does not travel with the
// block. With one group, rows are a plain list of blocks.
//
// Overlap with compute. Whole blocks travel while later chunks of the prompt are computed
// (Announce). The first layers of all blocks of the last chunk travel while its later layers are
// computed (AnnounceLayers, pull_order.h). So when the prompt is computed, at most the last part is
// left to send.
//
// Parts. A part is a block, or a slice: a layer range of a block. Its frame names it and carries a
// CRC32C for each of its pieces (pool/pieces.h). Each part is verified when it lands. A block is
// done, and counted in events, when its last layer has landed. If a sender stops before that
// (cancelled, preempted, failed), no event ever reports the unfinished block. Slices go only to
// receivers that accept them (TakesLayers in transfer_frame.h). Other receivers get whole blocks at
// the end.
//
//   receiver: Expect → events kReceiving* → kReceived | kReceiveFailed
//   sender:   StartSend → Announce* (the last with `final`) → kSent | kSendFailed
//
// Rules:
//  1. Posts never block. Poll reports the results.
//  2. The blocks named in a post belong to the transport (read-only at the sender, write-only at
//     the receiver) until that transfer's terminal event has been polled: kReceived,
//     kReceiveFailed, kSent or kSendFailed. After it, no thread of the transport touches them.
//     Cancel only makes that event come sooner.
//  3. Every successful post gets exactly one terminal event. The peer cannot prevent it. It comes
//     shortly after the deadline at the latest, and needs no further post.
//  4. Bad input fails the transfer or the connection, never the process, and never publishes a
//     byte. Bad input is: another epoch, an unknown transfer, another token count, other first
//     blocks of a window, a block or layer out of range, or a wrong CRC.
//
// Thread safety: posts and Poll are called from the engine thread. The waker may be called from any
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
#include "kvtransfer/moved_kv_bytes.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

// Part of a ticket: permission to deliver one part of a chunked prompt (cache/chunk_layout.h). Each
// part is a sequence of its own, so it travels as a transfer of its own. It has the epoch, the
// address, the block size and the timeout of its ticket.
struct PartTicket {
  int32_t part = 0;          // number of the part in the layout of the prompt
  uint64_t transfer_id = 0;  // as in TransferTicket
  // Blocks of the part, counted as in TransferTicket: the first that the receiver lacks, and how
  // many there are up to the part's end.
  int32_t first_block = 0;
  int32_t block_count = 0;

  bool operator==(const PartTicket&) const = default;
};

// Permission to deliver KV to a decode worker. The decode worker issues it, and the router passes
// it to the prefill worker.
struct TransferTicket {
  uint64_t transfer_id = 0;  // unique within the receiver's epoch and hard to guess
  Epoch receiver_epoch{0};
  // Ways to reach the receiver, best first: "shm:NAME,tcp:HOST:PORT", one of these, or
  // "loopback:NAME". The sender uses the first one that it can open.
  std::string address;
  int32_t first_block = 0;  // first block that the receiver lacks, in sequence order
  int32_t block_count = 0;  // blocks that it expects from there to the prompt's end
  // Tokens per block at the receiver; the counts above are in these blocks. 0: the sender's block
  // size.
  int32_t block_size = 0;
  // For KV groups 1, 2, ...: the first block that the receiver lacks, also in the receiver's blocks
  // and counted from the sequence's begin. In [first_block, first_block + block_count].
  std::vector<int32_t> window_first_blocks = {};
  int64_t timeout_ms = 0;  // from now; how long the receiver waits for the whole transfer
  // A chunked prompt: the parts that the receiver lacks, in rising order. The other fields are
  // about the question's sequence. If the ticket is for a pull of chunks, it has only parts:
  // transfer_id and block_count are 0.
  std::vector<PartTicket> parts = {};
  // The receiver divides long chunks into parts of this many tokens, a multiple of 256. The sender
  // must do the same. 0 if the prompt has no chunks.
  int32_t piece_tokens = 0;
};

struct ReceiveSpec {
  uint64_t transfer_id = 0;
  int32_t first_block = 0;
  std::vector<int32_t> window_first_blocks = {};  // as in TransferTicket
  std::vector<BlockId> blocks;  // rows: where block first_block + i of the sequence lands
  int32_t tokens = 0;  // tokens of the sequence's prompt; the last block may be partly full
  int64_t timeout_ms = 30'000;
  // The sender may have fewer blocks than asked for. Its final announcement then says how many, and
  // the transfer is complete with these. Both sides agree on this flag beforehand.
  bool may_end_early = false;
};

struct SendSpec {
  uint64_t sender_transfer =
      0;  // the sender's own id, used in its events; unique while the transfer lives
  TransferTicket ticket;
  int32_t tokens = 0;  // as in ReceiveSpec
  int64_t timeout_ms = 30'000;
  bool may_end_early = false;  // as in ReceiveSpec
  int32_t priority = 0;  // among transfers to the same receiver; higher goes first (send_queue.h)
};

struct TransferEvent {
  enum class Kind : uint8_t {
    kReceiving,      // more blocks have landed and are verified; `blocks_done` counts them
    kReceived,       // everything that the sender had has landed; `manifest` is valid
    kReceiveFailed,  // `status` says why
    kSent,           // the receiver acknowledged everything
    kSendFailed,
  };
  Kind kind;
  uint64_t id = 0;  // transfer_id or sender_transfer
  int32_t blocks_done =
      0;  // leading blocks that are done, in this side's blocks; verified, at a receiver
  std::string manifest;
  absl::Status status;
  int64_t bytes = 0;    // payload moved so far
  int64_t busy_us = 0;  // time from the first request to the last byte, without waits for compute
  // kSent only: transfer time that compute did not hide. Runs from the final announcement until the
  // receiver had everything. If the receiver has another clock, it ends when the receiver's Done
  // arrives.
  int64_t exposed_us = 0;
};

inline constexpr size_t kMaxManifestBytes = 1 << 20;

class KvTransport {
 public:
  virtual ~KvTransport() = default;

  // Returns the address under which senders reach this transport's receiver.
  virtual std::string address() const = 0;
  virtual Epoch epoch() const = 0;

  // Receiver: starts to wait for a transfer. AlreadyExists; InvalidArgument if the counts do not
  // fit the pool; ResourceExhausted if there are too many transfers.
  virtual absl::Status Expect(ReceiveSpec spec) = 0;
  virtual void CancelReceive(uint64_t transfer_id) = 0;

  // Sender: starts a transfer. InvalidArgument names a bad address or ticket field. The transport
  // connects later, not in this call.
  virtual absl::Status StartSend(SendSpec spec) = 0;
  // The next blocks of SenderBlocks (transfer_plan.h) are computed and lie in the rows `blocks`.
  // The first of them is the ticket's first_block if the block sizes are equal. `final` means that
  // no more blocks follow; `manifest` then completes the hand-off.
  virtual void Announce(uint64_t sender_transfer, std::span<const BlockId> blocks, bool final,
                        std::string manifest) = 0;
  // The first `layers` layers of all remaining blocks are computed; the other layers may still be
  // written. `rest` has the rows of all these blocks, up to the transfer's end. After this, only
  // AnnounceLayers with more layers, or Announce of the same blocks, may follow. Not for a transfer
  // that may end early.
  virtual void AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                              int32_t layers) = 0;
  virtual void CancelSend(uint64_t sender_transfer) = 0;

  // The engine wrote to these blocks of KV group `group`. Blocks in `full` do not change until they
  // are reported again or a transfer lands in them. Blocks in `part` may change at any time. The
  // caller reports every write before it announces the blocks. So a transport may keep the
  // checksums of full blocks.
  virtual void Written(std::span<const BlockId> /*full*/, std::span<const BlockId> /*part*/,
                       int32_t /*group*/) {}

  // Returns the events since the last call, in order per transfer.
  virtual std::vector<TransferEvent> Poll() = 0;

  // Payload moved since the start. May be called from any thread.
  virtual MovedKvBytes::Totals moved_bytes() const { return {}; }
};

struct TransportOptions {
  KvFingerprint fingerprint;
  Epoch epoch{0};
  TransferPool* pool = nullptr;  // read from and written to; outlives the transport
  std::function<void()> waker;   // called when Poll has events; must not block
  int32_t max_transfers = 1024;
};

}  // namespace baton
