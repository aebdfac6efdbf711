// Frames that two workers exchange over a byte stream, and their encoding.
//
//   frame   := header body [payload]           all integers little-endian
//   header  := magic u32 "BKVT" | format u8 | type u8 | zero u16 | body_bytes u32 |
//              body_crc u32 | header_crc u32   (20 bytes)
//
// Only Block has a payload: the block's pieces in canonical order (transfer_plan.h), payload_bytes
// long. The body's CRC does not cover it, because the body has a CRC for each piece. Hello's body
// starts with the newest protocol version that its sender speaks. So a receiver can refuse an
// unknown version by name, whatever follows it.
//
// A later protocol version adds its fields at a frame's end, and only if they hold a value. Peers
// of earlier versions never receive them.
//
// Decoding never trusts a length. Each type has a limit for its body, checked before anything is
// read or allocated. Every string and count has its own limit. Trailing bytes are refused. Errors
// are InvalidArgument, or DataLoss for a CRC, and name field and limit.
//
// Thread safety: pure functions on plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/strong_int.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

inline constexpr size_t kFrameHeaderBytes = 20;
inline constexpr size_t kMaxFingerprintText = 512;  // of each string in it
inline constexpr size_t kMaxReasonBytes = 1024;
inline constexpr size_t kMaxPieces = 4096;  // of one block
inline constexpr int32_t kMaxLayers = kMaxPieces / 2;
inline constexpr size_t kMaxGreetingBytes = 8 << 10;
inline constexpr size_t kNcclUniqueIdBytes = 128;
inline constexpr int32_t kMaxBatchBlocks = 64;  // in one NcclBatch
inline constexpr int32_t kMaxNcclWindow = 16;   // batches in flight
inline constexpr int64_t kMaxNcclBatchBytes = int64_t{1} << 30;

// First frame of a connection. The side that opened it (the sender of blocks) sends it. Its
// encoding is in hello_fields.h.
struct HelloFrame {
  KvFingerprint fingerprint;
  Epoch epoch{0};    // of the sender
  std::string node;  // the sender's address, for log messages
  bool operator==(const HelloFrame&) const = default;
};

struct HelloReplyFrame {
  bool accepted = false;
  Epoch epoch{0};      // of the receiver; zero when refused
  std::string reason;  // if refused: the differing field and both values
  bool operator==(const HelloReplyFrame&) const = default;
};

// Sender: "of this transfer, blocks [first_block, first_block + available) are ready, and the first
// `layers` layers of all later blocks". Counts are cumulative, so the latest Announce is complete.
// `layers` is sent only to a receiver that sent TakesLayers.
struct AnnounceFrame {
  uint64_t transfer_id = 0;
  Epoch receiver_epoch{0};
  uint64_t sender_transfer = 0;
  int32_t first_block = 0;
  int32_t block_count = 0;
  int32_t tokens = 0;
  int32_t available = 0;
  bool final = false;
  std::string manifest;  // set if `final`
  int32_t layers = 0;
  // As in the ticket, in the receiver's blocks. They determine which groups each block carries.
  std::vector<int32_t> window_first_blocks = {};
  bool operator==(const AnnounceFrame&) const = default;
};

// Receiver: "send me blocks [first, first + count), or these layers of them", in sequence order.
struct PullFrame {
  uint64_t transfer_id = 0;
  uint64_t sender_transfer = 0;
  int32_t first = 0;
  int32_t count = 0;
  LayerRange layers = {};
  bool operator==(const PullFrame&) const = default;
};

struct BlockFrame {
  uint64_t transfer_id = 0;
  Epoch receiver_epoch{0};
  uint64_t sender_transfer = 0;
  int32_t block = 0;  // in sequence order
  int32_t valid_tokens = 0;
  int64_t payload_bytes = 0;         // bytes of `layers`
  std::vector<uint32_t> piece_crcs;  // [layer][plane], for `layers` and the groups that travel
  LayerRange layers = {};
  bool operator==(const BlockFrame&) const = default;
};

// Receiver: everything landed and is verified.
struct DoneFrame {
  uint64_t transfer_id = 0;
  uint64_t sender_transfer = 0;
  // When everything landed, by the monotonic clock of the host that both are on. 0: unknown.
  int64_t landed_us = 0;
  bool operator==(const DoneFrame&) const = default;
};

// Either side: the transfer has ended.
struct AbortFrame {
  uint64_t transfer_id = 0;
  uint64_t sender_transfer = 0;
  absl::StatusCode code = absl::StatusCode::kCancelled;
  std::string reason;
  bool operator==(const AbortFrame&) const = default;
};

// Heartbeats while transfers are open. A Pong answers a Ping.
struct PingFrame {
  bool operator==(const PingFrame&) const = default;
};
struct PongFrame {
  bool operator==(const PongFrame&) const = default;
};

// Receiver: accepts announcements of blocks of which only some layers are computed. Sent only to
// peers of protocol version 5 and later. Older senders over
// NCCL ignore it.
struct TakesLayersFrame {
  bool operator==(const TakesLayersFrame&) const = default;
};

// Sender, over shared memory only. Two descriptors came with, or before, this frame: the sender's
// pool, and the generations of the pool's blocks.
struct SharedPoolFrame {
  int64_t num_blocks = 0;                       // of KV group 0
  std::vector<int64_t> window_num_blocks = {};  // of groups 1, 2, ...
  bool operator==(const SharedPoolFrame&) const = default;
};

// Sender: as SharedPool, but other processes cannot map its pool (a GPU's). The first file has
// slots instead, with the layout of a block-major pool. Each holds one block, and is used again as
// soon as SharedTaken says so.
struct SharedSlotsFrame {
  int32_t slots = 0;  // of each KV group
  bool operator==(const SharedSlotsFrame&) const = default;
};

// Receiver: no longer reads the slots of the connection's first `blocks` SharedBlocks.
struct SharedTakenFrame {
  uint64_t blocks = 0;
  bool operator==(const SharedTakenFrame&) const = default;
};

// A block of the sender's file. Valid while the block's generation equals `generation`.
struct SharedPlace {
  int32_t pool_block = 0;
  uint64_t generation = 0;
  bool operator==(const SharedPlace&) const = default;
};

// Over shared memory only: a Block; its payload stays in the sender's file.
struct SharedBlockFrame {
  BlockFrame block;
  SharedPlace place;                      // of KV group 0
  std::vector<SharedPlace> windows = {};  // other groups that travel with it, ascending
  bool operator==(const SharedBlockFrame&) const = default;
};

// ---- Payload over NCCL. These frames travel on the TCP stream beside it (nccl_send_channel.h,
// ---- nccl_receive_channel.h). Used only if both peers have NCCL; the receiver offers it.

// Receiver: accepts batches over this version of NCCL. At most `window` batches of at most
// `batch_bytes` each may be unacknowledged.
struct NcclOfferFrame {
  uint32_t nccl_version = 0;
  int32_t window = 0;
  int64_t batch_bytes = 0;
  bool operator==(const NcclOfferFrame&) const = default;
};

// Sender: accepts the offer. The sender is rank 0 of the communicator with this unique id, the
// receiver rank 1.
struct NcclJoinFrame {
  std::string unique_id;  // kNcclUniqueIdBytes
  bool operator==(const NcclJoinFrame&) const = default;
};

// Receiver: the communicator is ready, and no operation is in flight in it.
struct NcclReadyFrame {
  bool operator==(const NcclReadyFrame&) const = default;
};

// Sender: the communicator's next operation carries the payloads of these blocks, one after the
// other.
struct NcclBatchFrame {
  uint64_t sequence = 0;  // counted from 0 in each communicator
  std::vector<BlockFrame> blocks;
  bool operator==(const NcclBatchFrame&) const = default;
};

// Receiver: this many batches, counted from the communicator's first, have landed or need no
// resending.
struct NcclLandedFrame {
  uint64_t batches = 0;
  bool operator==(const NcclLandedFrame&) const = default;
};

// Either side: stops batches, temporarily or (`closed`) together with the communicator. Also
// refuses an offer. The receiver reports in it which batches landed; the others are sent again over
// TCP.
struct NcclStopFrame {
  bool closed = false;
  uint64_t landed = 0;  // set by the receiver
  absl::StatusCode code = absl::StatusCode::kCancelled;
  std::string reason;
  bool operator==(const NcclStopFrame&) const = default;
};

// The position in this list, counted from 1, is the type number on the wire.
using Frame =
    std::variant<HelloFrame, HelloReplyFrame, AnnounceFrame, PullFrame, BlockFrame, DoneFrame,
                 AbortFrame, PingFrame, PongFrame, SharedPoolFrame, SharedBlockFrame,
                 NcclOfferFrame, NcclJoinFrame, NcclReadyFrame, NcclBatchFrame, NcclLandedFrame,
                 NcclStopFrame, TakesLayersFrame, SharedSlotsFrame, SharedTakenFrame>;

const char* FrameName(const Frame& frame);
// True for the frames of the NCCL section above.
bool IsNcclFrame(const Frame& frame);

struct FrameHeader {
  uint8_t type = 0;
  uint32_t body_bytes = 0;
  uint32_t body_crc = 0;
};

// Returns header and body. A reason over its limit is cut. Any other string over its limit is a
// bug: callers check first.
std::string EncodeFrame(const Frame& frame);

// REQUIRES: bytes.size() == kFrameHeaderBytes.
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes);
// True if a Hello or HelloReply follows. Their bodies have at most kMaxGreetingBytes bytes.
bool IsGreeting(const FrameHeader& header);
// REQUIRES: body.size() == header.body_bytes.
absl::StatusOr<Frame> DecodeFrameBody(const FrameHeader& header, std::span<const std::byte> body);

}  // namespace baton
