#include "kvtransfer/protocol/transfer_frame.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/protocol/frame_fields.h"
#include "kvtransfer/protocol/hello_fields.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

constexpr uint32_t kMagic = 0x54564B42;  // "BKVT"
constexpr uint8_t kFormat = 1;
constexpr size_t kUsualFrameBytes = 384;  // including a block's checksums

struct FrameType {
  const char* name;
  size_t max_body_bytes;
};
constexpr size_t kMaxHelloBytes = 8 * (kMaxFingerprintText + 4) + 64;
constexpr size_t kMaxPlacesBytes = size_t{12} * kMaxKvGroups;  // places in a SharedBlock
constexpr std::array<FrameType, std::variant_size_v<Frame>> kTypes = {{
    {"Hello", kMaxHelloBytes},
    {"HelloReply", kMaxReasonBytes + 32},
    {"Announce", kMaxManifestBytes + 64 + 4 * kMaxKvGroups},
    {"Pull", 32},
    {"Block", 4 * kMaxPieces + 64},
    {"Done", 24},
    {"Abort", kMaxReasonBytes + 32},
    {"Ping", 0},
    {"Pong", 0},
    {"SharedPool", 8 * kMaxKvGroups},
    {"SharedBlock", 4 * kMaxPieces + 96 + kMaxPlacesBytes},
    {"NcclOffer", 16},
    {"NcclJoin", kNcclUniqueIdBytes + 4},
    {"NcclReady", 0},
    {"NcclBatch", kMaxBatchBlocks*(4 * kMaxPieces + 64) + 16},
    {"NcclLanded", 8},
    {"NcclStop", kMaxReasonBytes + 32},
    {"TakesLayers", 0},
    {"SharedSlots", 4},
    {"SharedTaken", 8},
}};
constexpr size_t kHelloTypes = 2;  // the first types are Hello and HelloReply
static_assert(kTypes[0].max_body_bytes <= kMaxGreetingBytes);
static_assert(kTypes[1].max_body_bytes <= kMaxGreetingBytes);

constexpr int64_t kMaxCount = INT32_MAX;

template <typename F>
concept Empty = std::is_empty_v<F>;
void Write(FieldWriter&, const Empty auto&) {}
void Read(FieldReader&, Empty auto&) {}

void WriteLayers(FieldWriter& w, LayerRange layers) {
  if (layers.all()) return;
  w.Number(layers.first);
  w.Number(layers.count);
}

void ReadLayers(FieldReader& r, LayerRange& layers) {
  if (!r.ok() || r.at_end()) return;
  r.Count("first layer", kMaxLayers, layers.first);
  r.Count("layers", kMaxLayers - layers.first, layers.count);
  if (r.ok() && layers.count == 0) r.Fail("layers is 0");
}

void Write(FieldWriter& w, const HelloFrame& f) { WriteHello(w, f); }
void Read(FieldReader& r, HelloFrame& f) { ReadHello(r, f); }

void Write(FieldWriter& w, const HelloReplyFrame& f) {
  w.Number(static_cast<uint8_t>(f.accepted));
  w.Number(f.epoch.value());
  w.Text(std::string_view(f.reason).substr(0, kMaxReasonBytes));
}

void Read(FieldReader& r, HelloReplyFrame& f) {
  r.Flag("accepted", f.accepted);
  uint64_t epoch;
  r.Number("epoch", epoch);
  f.epoch = Epoch(epoch);
  r.Text("reason", kMaxReasonBytes, f.reason);
}

// Layers are written before the window blocks. If window blocks follow, layers are written even
// when 0.
void Write(FieldWriter& w, const AnnounceFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.receiver_epoch.value());
  w.Number(f.sender_transfer);
  for (const int32_t value : {f.first_block, f.block_count, f.tokens, f.available}) w.Number(value);
  w.Number(static_cast<uint8_t>(f.final));
  w.Text(f.manifest);
  if (f.layers != 0 || !f.window_first_blocks.empty()) w.Number(f.layers);
  for (const int32_t first : f.window_first_blocks) w.Number(first);
}

void Read(FieldReader& r, AnnounceFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  uint64_t epoch;
  r.Number("receiver_epoch", epoch);
  f.receiver_epoch = Epoch(epoch);
  r.Number("sender_transfer", f.sender_transfer);
  r.Count("first_block", kMaxCount, f.first_block);
  r.Count("block_count", kMaxCount - f.first_block, f.block_count);
  r.Count("tokens", kMaxCount, f.tokens);
  r.Count("available", f.block_count, f.available);
  r.Flag("final", f.final);
  r.Text("manifest", kMaxManifestBytes, f.manifest);
  if (!r.ok() || r.at_end()) return;
  r.Count("layers", kMaxLayers, f.layers);
  if (r.ok() && f.layers == 0 && r.at_end()) r.Fail("layers is 0");
  while (r.ok() && !r.at_end()) {
    if (f.window_first_blocks.size() == kMaxKvGroups - 1) {
      return r.Fail(
          absl::StrFormat("window_first_blocks has more than %d entries", kMaxKvGroups - 1));
    }
    r.Count("window_first_blocks", kMaxCount, f.window_first_blocks.emplace_back());
  }
}

void Write(FieldWriter& w, const PullFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
  w.Number(f.first);
  w.Number(f.count);
  WriteLayers(w, f.layers);
}

void Read(FieldReader& r, PullFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
  r.Count("first", kMaxCount, f.first);
  r.Count("count", kMaxCount - f.first, f.count);
  ReadLayers(r, f.layers);
}

void WriteWholeBlock(FieldWriter& w, const BlockFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.receiver_epoch.value());
  w.Number(f.sender_transfer);
  w.Number(f.block);
  w.Number(f.valid_tokens);
  w.Number(f.payload_bytes);
  w.Number(static_cast<int32_t>(f.piece_crcs.size()));
  for (const uint32_t crc : f.piece_crcs) w.Number(crc);
}

void Write(FieldWriter& w, const BlockFrame& f) {
  WriteWholeBlock(w, f);
  WriteLayers(w, f.layers);
}

void ReadWholeBlock(FieldReader& r, BlockFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  uint64_t epoch;
  r.Number("receiver_epoch", epoch);
  f.receiver_epoch = Epoch(epoch);
  r.Number("sender_transfer", f.sender_transfer);
  r.Count("block", kMaxCount, f.block);
  r.Count("valid_tokens", kMaxBlockSize, f.valid_tokens);
  r.Number("payload_bytes", f.payload_bytes);
  if (f.payload_bytes < 0) r.Fail("payload_bytes is negative");
  int32_t pieces;
  r.Count("piece count", kMaxPieces, pieces);
  if (!r.ok()) return;
  f.piece_crcs.resize(pieces);
  for (uint32_t& crc : f.piece_crcs) r.Number("piece_crc", crc);
}

void Read(FieldReader& r, BlockFrame& f) {
  ReadWholeBlock(r, f);
  ReadLayers(r, f.layers);
}

void Write(FieldWriter& w, const DoneFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
  if (f.landed_us != 0) w.Number(f.landed_us);
}

void Read(FieldReader& r, DoneFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
  if (!r.ok() || r.at_end()) return;
  r.Number("landed_us", f.landed_us);
  if (r.ok() && f.landed_us <= 0)
    r.Fail(absl::StrFormat("landed_us is %d, it must be above 0", f.landed_us));
}

void WriteReason(FieldWriter& w, absl::StatusCode code, std::string_view reason) {
  w.Number(static_cast<uint8_t>(code));
  w.Text(reason.substr(0, kMaxReasonBytes));
}

void ReadReason(FieldReader& r, absl::StatusCode& code, std::string& reason) {
  uint8_t number;
  r.Number("code", number);
  if (r.ok() &&
      (number == 0 || number > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated))) {
    r.Fail(absl::StrFormat("code %d is outside [1, 16]", number));
  }
  code = static_cast<absl::StatusCode>(number);
  r.Text("reason", kMaxReasonBytes, reason);
}

void Write(FieldWriter& w, const AbortFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
  WriteReason(w, f.code, f.reason);
}

void Read(FieldReader& r, AbortFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
  ReadReason(r, f.code, f.reason);
}

void Write(FieldWriter& w, const SharedPoolFrame& f) {
  w.Number(f.num_blocks);
  for (const int64_t blocks : f.window_num_blocks) w.Number(blocks);
}

void ReadNumBlocks(FieldReader& r, int64_t& num_blocks) {
  r.Number("num_blocks", num_blocks);
  if (num_blocks < 0 || num_blocks > kMaxCount) {
    r.Fail(absl::StrFormat("num_blocks %d is outside [0, %d]", num_blocks, kMaxCount));
  }
}

void Read(FieldReader& r, SharedPoolFrame& f) {
  ReadNumBlocks(r, f.num_blocks);
  while (r.ok() && !r.at_end()) ReadNumBlocks(r, f.window_num_blocks.emplace_back());
}

void Write(FieldWriter& w, const SharedSlotsFrame& f) { w.Number(f.slots); }
void Read(FieldReader& r, SharedSlotsFrame& f) { r.Count("slots", kMaxCount, f.slots); }
void Write(FieldWriter& w, const SharedTakenFrame& f) { w.Number(f.blocks); }
void Read(FieldReader& r, SharedTakenFrame& f) { r.Number("blocks", f.blocks); }

void Write(FieldWriter& w, const SharedPlace& place) {
  w.Number(place.pool_block);
  w.Number(place.generation);
}

void Read(FieldReader& r, SharedPlace& place) {
  r.Count("pool_block", kMaxCount, place.pool_block);
  r.Number("generation", place.generation);
}

// Layers are written before the windows. If windows follow, "all layers" is written as [0, +0).
void Write(FieldWriter& w, const SharedBlockFrame& f) {
  Write(w, f.place);
  WriteWholeBlock(w, f.block);
  if (f.windows.empty()) return WriteLayers(w, f.block.layers);
  w.Number(f.block.layers.first);
  w.Number(f.block.layers.count);
  for (const SharedPlace& place : f.windows) Write(w, place);
}

void Read(FieldReader& r, SharedBlockFrame& f) {
  Read(r, f.place);
  ReadWholeBlock(r, f.block);
  if (!r.ok() || r.at_end()) return;
  LayerRange& layers = f.block.layers;
  r.Count("first layer", kMaxLayers, layers.first);
  r.Count("layers", kMaxLayers - layers.first, layers.count);
  if (r.ok() && layers.count == 0 && (r.at_end() || layers.first != 0)) r.Fail("layers is 0");
  while (r.ok() && !r.at_end()) Read(r, f.windows.emplace_back());
}

void Write(FieldWriter& w, const NcclOfferFrame& f) {
  w.Number(f.nccl_version);
  w.Number(f.window);
  w.Number(f.batch_bytes);
}

void Read(FieldReader& r, NcclOfferFrame& f) {
  r.Number("nccl_version", f.nccl_version);
  r.Count("window", kMaxNcclWindow, f.window);
  r.Number("batch_bytes", f.batch_bytes);
  if (r.ok() && (f.window == 0 || f.batch_bytes < 1 || f.batch_bytes > kMaxNcclBatchBytes)) {
    r.Fail(absl::StrFormat("window %d or batch_bytes %d is outside [1, %d] or [1, %d]", f.window,
                           f.batch_bytes, kMaxNcclWindow, kMaxNcclBatchBytes));
  }
}

void Write(FieldWriter& w, const NcclJoinFrame& f) { w.Text(f.unique_id); }

void Read(FieldReader& r, NcclJoinFrame& f) {
  r.Text("unique_id", kNcclUniqueIdBytes, f.unique_id);
  if (r.ok() && f.unique_id.size() != kNcclUniqueIdBytes) {
    r.Fail(absl::StrCat("unique_id has ", f.unique_id.size(), " bytes, not ", kNcclUniqueIdBytes));
  }
}

void Write(FieldWriter& w, const NcclBatchFrame& f) {
  w.Number(f.sequence);
  w.Number(static_cast<int32_t>(f.blocks.size()));
  for (const BlockFrame& block : f.blocks) WriteWholeBlock(w, block);
  // Only for receivers that sent TakesLayers. "All layers" is written as [0, +0).
  if (std::ranges::all_of(f.blocks, [](const BlockFrame& block) { return block.layers.all(); })) {
    return;
  }
  for (const BlockFrame& block : f.blocks) {
    w.Number(block.layers.first);
    w.Number(block.layers.count);
  }
}

void Read(FieldReader& r, NcclBatchFrame& f) {
  r.Number("sequence", f.sequence);
  int32_t blocks;
  r.Count("block count", kMaxBatchBlocks, blocks);
  for (int32_t i = 0; i < blocks && r.ok(); ++i) ReadWholeBlock(r, f.blocks.emplace_back());
  if (!r.ok() || r.at_end()) return;
  bool slices = false;
  for (BlockFrame& block : f.blocks) {
    r.Count("first layer", kMaxLayers, block.layers.first);
    r.Count("layers", kMaxLayers - block.layers.first, block.layers.count);
    if (r.ok() && block.layers.all() && block.layers.first != 0) r.Fail("layers is 0");
    slices = slices || !block.layers.all();
  }
  if (r.ok() && !slices) r.Fail("no block has layers");
}

void Write(FieldWriter& w, const NcclLandedFrame& f) { w.Number(f.batches); }
void Read(FieldReader& r, NcclLandedFrame& f) { r.Number("batches", f.batches); }

void Write(FieldWriter& w, const NcclStopFrame& f) {
  w.Number(static_cast<uint8_t>(f.closed));
  w.Number(f.landed);
  WriteReason(w, f.code, f.reason);
}

void Read(FieldReader& r, NcclStopFrame& f) {
  r.Flag("closed", f.closed);
  r.Number("landed", f.landed);
  ReadReason(r, f.code, f.reason);
}

template <size_t kIndex = 0>
absl::StatusOr<Frame> ReadType(size_t index, std::span<const std::byte> body) {
  if constexpr (kIndex < std::variant_size_v<Frame>) {
    if (index != kIndex) return ReadType<kIndex + 1>(index, body);
    FieldReader reader(kTypes[index].name, body);
    std::variant_alternative_t<kIndex, Frame> frame;
    Read(reader, frame);
    RETURN_IF_ERROR(reader.Finish());
    return Frame(std::move(frame));
  }
  return absl::InternalError("frame type out of range");
}

}  // namespace

const char* FrameName(const Frame& frame) { return kTypes[frame.index()].name; }

bool IsNcclFrame(const Frame& frame) {
  return std::visit(
      [](const auto& f) {
        using F = std::decay_t<decltype(f)>;
        return std::is_same_v<F, NcclOfferFrame> || std::is_same_v<F, NcclJoinFrame> ||
               std::is_same_v<F, NcclReadyFrame> || std::is_same_v<F, NcclBatchFrame> ||
               std::is_same_v<F, NcclLandedFrame> || std::is_same_v<F, NcclStopFrame>;
      },
      frame);
}

std::string EncodeFrame(const Frame& frame) {
  FieldWriter w;
  w.out().reserve(kUsualFrameBytes);
  w.out().resize(kFrameHeaderBytes);  // the header is filled in at the end
  std::visit([&](const auto& f) { Write(w, f); }, frame);
  const std::string_view body = std::string_view(w.out()).substr(kFrameHeaderBytes);
  CHECK_LE(body.size(), kTypes[frame.index()].max_body_bytes) << FrameName(frame);
  FieldWriter header;
  header.Number(kMagic);
  header.Number(kFormat);
  header.Number(static_cast<uint8_t>(frame.index() + 1));
  header.Number(uint16_t{0});
  header.Number(static_cast<uint32_t>(body.size()));
  header.Number(Crc32c(body));
  header.Number(Crc32c(std::string_view(header.out())));
  w.out().replace(0, kFrameHeaderBytes, header.out());
  return std::move(w.out());
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), kFrameHeaderBytes);
  FieldReader r("frame header", bytes);
  uint32_t magic, header_crc;
  uint8_t format;
  uint16_t zero;
  FrameHeader header;
  r.Number("magic", magic);
  r.Number("format", format);
  r.Number("type", header.type);
  r.Number("zero", zero);
  r.Number("body_bytes", header.body_bytes);
  r.Number("body_crc", header.body_crc);
  r.Number("header_crc", header_crc);
  if (magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame header: magic %08x, expected %08x", magic, kMagic));
  }
  const uint32_t crc = Crc32c(bytes.first(kFrameHeaderBytes - sizeof(header_crc)));
  if (crc != header_crc) {
    return absl::DataLossError(
        absl::StrFormat("frame header: CRC32C %08x, header_crc says %08x", crc, header_crc));
  }
  if (format != kFormat || zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame header: format %d.%d, expected %d.0", format, zero, kFormat));
  }
  if (header.type == 0 || header.type > kTypes.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("frame header: type %d is outside [1, %d]", header.type, kTypes.size()));
  }
  const FrameType& type = kTypes[header.type - 1];
  if (header.body_bytes > type.max_body_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: body_bytes %d, the limit is %d", type.name, header.body_bytes, type.max_body_bytes));
  }
  return header;
}

bool IsGreeting(const FrameHeader& header) { return header.type <= kHelloTypes; }

absl::StatusOr<Frame> DecodeFrameBody(const FrameHeader& header, std::span<const std::byte> body) {
  CHECK_EQ(body.size(), header.body_bytes);
  const char* name = kTypes[header.type - 1].name;
  const uint32_t crc = Crc32c(body);
  if (crc != header.body_crc) {
    return absl::DataLossError(
        absl::StrFormat("%s: body CRC32C %08x, header says %08x", name, crc, header.body_crc));
  }
  return ReadType(header.type - 1, body);
}

}  // namespace baton
