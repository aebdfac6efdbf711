// The frames two workers exchange over a byte stream, and their encoding.
//
//   frame   := header body [payload]           all integers little-endian
//   header  := magic u32 "BKVT" | format u8 | type u8 | zero u16 | body_bytes u32 | body_crc u32 |
//   header_crc u32   (20 bytes)
//
// Only Block has a payload: the block's pieces in canonical order (transfer_plan.h), payload_bytes
// long, outside the body's CRC because each piece has its own in the body. Hello's body starts with
// the newest protocol version that its sender speaks, so that a version that is not spoken can be
// refused by name whatever follows it.
//
// What a later protocol version adds to a frame stands at its end, and only where it says
// something: a peer of an earlier one is never sent it.
//
// Decoding never trusts a length: a body is bounded by its type's limit before anything is read or
// allocated, every string and count inside by its own, and trailing bytes are refused. Errors are
// InvalidArgument (or DataLoss for a CRC) and name field and limit.
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
inline constexpr size_t kMaxFingerprintText = 512;  // each of its strings
inline constexpr size_t kMaxReasonBytes = 1024;
inline constexpr size_t kMaxPieces = 4096;  // of a block
inline constexpr int32_t kMaxLayers = kMaxPieces / 2;
inline constexpr size_t kMaxGreetingBytes = 8 << 10;
inline constexpr size_t kNcclUniqueIdBytes = 128;
inline constexpr int32_t kMaxBatchBlocks = 64;  // in a NcclBatch
inline constexpr int32_t kMaxNcclWindow = 16;   // batches under way
inline constexpr int64_t kMaxNcclBatchBytes = int64_t{1} << 30;

// First frame of a connection, from the side that opened it (the sender of blocks). Its fields are
// in hello_fields.h.
struct HelloFrame {
  KvFingerprint fingerprint;
  Epoch epoch{0};    // of the sender
  std::string node;  // its address, for messages
  bool operator==(const HelloFrame&) const = default;
};

struct HelloReplyFrame {
  bool accepted = false;
  Epoch epoch{0};      // of the receiver; zero when refused
  std::string reason;  // when refused: the field that differs and both values
  bool operator==(const HelloReplyFrame&) const = default;
};

// Sender: "of this transfer, blocks [first_block, first_block + available) are ready, and of all
// behind them the first `layers` layers". Counts are cumulative, so the latest Announce says
// everything. Layers are told only to a receiver that said TakesLayers.
struct AnnounceFrame {
  uint64_t transfer_id = 0;
  Epoch receiver_epoch{0};
  uint64_t sender_transfer = 0;
  int32_t first_block = 0;
  int32_t block_count = 0;
  int32_t tokens = 0;
  int32_t available = 0;
  bool final = false;
  std::string manifest;  // with `final`
  int32_t layers = 0;
  // As in the ticket, in the receiver's blocks. They decide which groups each block carries.
  std::vector<int32_t> window_first_blocks = {};
  bool operator==(const AnnounceFrame&) const = default;
};

// Receiver: "send me blocks [first, first + count)", or these layers of them, in sequence order.
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
  int64_t payload_bytes = 0;         // of `layers`
  std::vector<uint32_t> piece_crcs;  // [layer][plane], of `layers` and the groups that travel
  LayerRange layers = {};            // in NcclBatch always all
  bool operator==(const BlockFrame&) const = default;
};

// Receiver: everything landed and was verified.
struct DoneFrame {
  uint64_t transfer_id = 0;
  uint64_t sender_transfer = 0;
  int64_t landed_us = 0;  // when, by the monotonic clock of a host that both are on; 0: not told
  bool operator==(const DoneFrame&) const = default;
};

// Either side: this transfer is over.
struct AbortFrame {
  uint64_t transfer_id = 0;
  uint64_t sender_transfer = 0;
  absl::StatusCode code = absl::StatusCode::kCancelled;
  std::string reason;
  bool operator==(const AbortFrame&) const = default;
};

// Signs of life while transfers are open; a Ping is answered by a Pong.
struct PingFrame {
  bool operator==(const PingFrame&) const = default;
};
struct PongFrame {
  bool operator==(const PongFrame&) const = default;
};

// Receiver: blocks of which only some layers are computed yet may be announced to it. Only to peers
// of protocol version 5 and later, who ignore it where their payload goes another way.
struct TakesLayersFrame {
  bool operator==(const TakesLayersFrame&) const = default;
};

// Over shared memory alone, and there from the sender: its pool's file and the file of its blocks'
// generations came as descriptors with, or before, this frame.
struct SharedPoolFrame {
  int64_t num_blocks = 0;                       // of KV group 0
  std::vector<int64_t> window_num_blocks = {};  // of groups 1, 2, ...
  bool operator==(const SharedPoolFrame&) const = default;
};

// A block of the sender's pool, valid for as long as its generation is this one.
struct SharedPlace {
  int32_t pool_block = 0;
  uint64_t generation = 0;
  bool operator==(const SharedPlace&) const = default;
};

// Over shared memory alone: a Block whose payload lies in the sender's pool.
struct SharedBlockFrame {
  BlockFrame block;
  SharedPlace place;                      // of KV group 0
  std::vector<SharedPlace> windows = {};  // of the other groups that travel with it, ascending
  bool operator==(const SharedBlockFrame&) const = default;
};

// ---- payload over NCCL, beside the TCP stream that carries these (nccl_send_channel.h,
// ---- nccl_receive_channel.h). Only between peers that have NCCL, which the receiver offers.

// Receiver: batches may come over this version of NCCL, at most `window` of at most `batch_bytes`
// each before they are acknowledged.
struct NcclOfferFrame {
  uint32_t nccl_version = 0;
  int32_t window = 0;
  int64_t batch_bytes = 0;
  bool operator==(const NcclOfferFrame&) const = default;
};

// Sender: accepts. It is rank 0 of the communicator with this unique id, the receiver rank 1.
struct NcclJoinFrame {
  std::string unique_id;  // kNcclUniqueIdBytes
  bool operator==(const NcclJoinFrame&) const = default;
};

// Receiver: the communicator stands, and nothing is under way in it.
struct NcclReadyFrame {
  bool operator==(const NcclReadyFrame&) const = default;
};

// Sender: the next operation of the communicator carries the payloads of these blocks, one behind
// the other.
struct NcclBatchFrame {
  uint64_t sequence = 0;  // counted from 0 in a communicator
  std::vector<BlockFrame> blocks;
  bool operator==(const NcclBatchFrame&) const = default;
};

// Receiver: so many batches, from the communicator's first on, have landed or need no resending.
struct NcclLandedFrame {
  uint64_t batches = 0;
  bool operator==(const NcclLandedFrame&) const = default;
};

// Either side: batches end here, for now or (`closed`) with the communicator; also the refusal of
// an offer. The receiver says in it which batches landed; what did not comes over TCP.
struct NcclStopFrame {
  bool closed = false;
  uint64_t landed = 0;  // from the receiver
  absl::StatusCode code = absl::StatusCode::kCancelled;
  std::string reason;
  bool operator==(const NcclStopFrame&) const = default;
};

// The order is the wire's type number, counted from 1.
using Frame = std::variant<HelloFrame, HelloReplyFrame, AnnounceFrame, PullFrame, BlockFrame,
                           DoneFrame, AbortFrame, PingFrame, PongFrame, SharedPoolFrame,
                           SharedBlockFrame, NcclOfferFrame, NcclJoinFrame, NcclReadyFrame,
                           NcclBatchFrame, NcclLandedFrame, NcclStopFrame, TakesLayersFrame>;

const char* FrameName(const Frame& frame);
// Whether it is one of NCCL's.
bool IsNcclFrame(const Frame& frame);

struct FrameHeader {
  uint8_t type = 0;
  uint32_t body_bytes = 0;
  uint32_t body_crc = 0;
};

// Header and body. Strings past their limits are cut (reasons) or a bug (all others: callers check
// them first).
std::string EncodeFrame(const Frame& frame);

// REQUIRES: bytes.size() == kFrameHeaderBytes.
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes);
// Whether a Hello or HelloReply follows; their bodies are at most kMaxGreetingBytes long.
bool IsGreeting(const FrameHeader& header);
// REQUIRES: body.size() == header.body_bytes.
absl::StatusOr<Frame> DecodeFrameBody(const FrameHeader& header, std::span<const std::byte> body);

}  // namespace baton
