#include "kvtransfer/transfer_frame.h"

#include <array>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

constexpr uint32_t kMagic = 0x54564B42;  // "BKVT"
constexpr uint8_t kFormat = 1;

struct FrameType {
  const char* name;
  size_t max_body_bytes;
};
constexpr size_t kMaxHelloBytes = 8 * (kMaxFingerprintText + 4) + 64;
constexpr std::array<FrameType, std::variant_size_v<Frame>> kTypes = {{
    {"Hello", kMaxHelloBytes},
    {"HelloReply", kMaxReasonBytes + 32},
    {"Announce", kMaxManifestBytes + 64},
    {"Pull", 32},
    {"Block", 4 * kMaxPieces + 64},
    {"Done", 16},
    {"Abort", kMaxReasonBytes + 32},
    {"Ping", 0},
    {"Pong", 0},
    {"SharedPool", 8},
    {"SharedBlock", 4 * kMaxPieces + 96},
}};
constexpr size_t kHelloTypes = 2;  // the first of them
static_assert(kTypes[0].max_body_bytes <= kMaxGreetingBytes);
static_assert(kTypes[1].max_body_bytes <= kMaxGreetingBytes);

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(bits & 0xFF));
      if constexpr (sizeof(T) > 1) bits >>= 8;
    }
  }
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  std::string& out() { return out_; }

 private:
  std::string out_;
};

// Reads fields in order; after the first error everything reads as zero and status() says which
// field it was.
class Reader {
 public:
  Reader(const char* frame, std::span<const std::byte> bytes) : frame_(frame), bytes_(bytes) {}

  template <typename T>
  void Number(std::string_view field, T& value) {
    value = 0;
    if (!Need(field, sizeof(T))) return;
    std::make_unsigned_t<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::make_unsigned_t<T>>(
          static_cast<std::make_unsigned_t<T>>(bytes_[at_ + i]) << (8 * i));
    }
    value = static_cast<T>(bits);
    at_ += sizeof(T);
  }
  // A count or index: no negative value, at most `limit`.
  void Count(std::string_view field, int64_t limit, int32_t& value) {
    Number(field, value);
    if (status_.ok() && (value < 0 || value > limit)) {
      Fail(absl::StrFormat("%s %d is outside [0, %d]", field, value, limit));
      value = 0;
    }
  }
  void Flag(std::string_view field, bool& value) {
    uint8_t byte;
    Number(field, byte);
    if (byte > 1) Fail(absl::StrFormat("%s is %d, not 0 or 1", field, byte));
    value = byte == 1;
  }
  void Text(std::string_view field, size_t limit, std::string& value) {
    uint32_t size;
    Number(field, size);
    if (status_.ok() && size > limit) {
      Fail(absl::StrFormat("%s has %d bytes, the limit is %d", field, size, limit));
    }
    if (!Need(field, size)) return;
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(frame_, ": ", what));
  }
  void SkipRest() { at_ = bytes_.size(); }
  absl::Status Finish() {
    if (status_.ok() && at_ != bytes_.size()) {
      Fail(absl::StrFormat("%d bytes follow the last field", bytes_.size() - at_));
    }
    return status_;
  }
  bool ok() const { return status_.ok(); }

 private:
  bool Need(std::string_view field, size_t bytes) {
    if (status_.ok() && bytes_.size() - at_ < bytes) {
      Fail(absl::StrFormat("%s needs %d bytes, %d are left", field, bytes, bytes_.size() - at_));
    }
    return status_.ok();
  }

  const char* frame_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  absl::Status status_;
};

constexpr int64_t kMaxCount = INT32_MAX;

void Write(Writer& w, const HelloFrame& f) {
  const KvFingerprint& p = f.fingerprint;
  w.Number(p.protocol_version);
  for (const std::string* text : {&p.model, &p.backend, &p.kv_type, &p.layout, &p.rope, &f.node}) {
    w.Text(*text);
  }
  w.Number(p.numerics_revision);
  for (const int32_t value : {p.block_size, p.layers, p.kv_heads, p.head_dim}) w.Number(value);
  w.Number(f.epoch.value());
}

void Read(Reader& r, HelloFrame& f) {
  KvFingerprint& p = f.fingerprint;
  r.Number("protocol_version", p.protocol_version);
  if (p.protocol_version < kOldestTransferProtocolVersion ||
      p.protocol_version > kTransferProtocolVersion + 1) {
    // What follows may lie differently there; the version alone is enough to refuse by name.
    r.SkipRest();
    return;
  }
  r.Text("model", kMaxFingerprintText, p.model);
  r.Text("backend", kMaxFingerprintText, p.backend);
  r.Text("kv_type", kMaxFingerprintText, p.kv_type);
  r.Text("layout", kMaxFingerprintText, p.layout);
  r.Text("rope", kMaxFingerprintText, p.rope);
  r.Text("node", kMaxFingerprintText, f.node);
  r.Number("numerics_revision", p.numerics_revision);
  r.Number("block_size", p.block_size);
  r.Number("layers", p.layers);
  r.Number("kv_heads", p.kv_heads);
  r.Number("head_dim", p.head_dim);
  uint64_t epoch;
  r.Number("epoch", epoch);
  f.epoch = Epoch(epoch);
}

void Write(Writer& w, const HelloReplyFrame& f) {
  w.Number(static_cast<uint8_t>(f.accepted));
  w.Number(f.epoch.value());
  w.Text(std::string_view(f.reason).substr(0, kMaxReasonBytes));
}

void Read(Reader& r, HelloReplyFrame& f) {
  r.Flag("accepted", f.accepted);
  uint64_t epoch;
  r.Number("epoch", epoch);
  f.epoch = Epoch(epoch);
  r.Text("reason", kMaxReasonBytes, f.reason);
}

void Write(Writer& w, const AnnounceFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.receiver_epoch.value());
  w.Number(f.sender_transfer);
  for (const int32_t value : {f.first_block, f.block_count, f.tokens, f.available}) w.Number(value);
  w.Number(static_cast<uint8_t>(f.final));
  w.Text(f.manifest);
}

void Read(Reader& r, AnnounceFrame& f) {
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
}

void Write(Writer& w, const PullFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
  w.Number(f.first);
  w.Number(f.count);
}

void Read(Reader& r, PullFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
  r.Count("first", kMaxCount, f.first);
  r.Count("count", kMaxCount - f.first, f.count);
}

void Write(Writer& w, const BlockFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.receiver_epoch.value());
  w.Number(f.sender_transfer);
  w.Number(f.block);
  w.Number(f.valid_tokens);
  w.Number(f.payload_bytes);
  w.Number(static_cast<int32_t>(f.piece_crcs.size()));
  for (const uint32_t crc : f.piece_crcs) w.Number(crc);
}

void Read(Reader& r, BlockFrame& f) {
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

void Write(Writer& w, const DoneFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
}

void Read(Reader& r, DoneFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
}

void Write(Writer& w, const AbortFrame& f) {
  w.Number(f.transfer_id);
  w.Number(f.sender_transfer);
  w.Number(static_cast<uint8_t>(f.code));
  w.Text(std::string_view(f.reason).substr(0, kMaxReasonBytes));
}

void Read(Reader& r, AbortFrame& f) {
  r.Number("transfer_id", f.transfer_id);
  r.Number("sender_transfer", f.sender_transfer);
  uint8_t code;
  r.Number("code", code);
  if (r.ok() && (code == 0 || code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated))) {
    r.Fail(absl::StrFormat("code %d is outside [1, 16]", code));
  }
  f.code = static_cast<absl::StatusCode>(code);
  r.Text("reason", kMaxReasonBytes, f.reason);
}

void Write(Writer&, const PingFrame&) {}
void Read(Reader&, PingFrame&) {}
void Write(Writer&, const PongFrame&) {}
void Read(Reader&, PongFrame&) {}

void Write(Writer& w, const SharedPoolFrame& f) { w.Number(f.num_blocks); }

void Read(Reader& r, SharedPoolFrame& f) {
  r.Number("num_blocks", f.num_blocks);
  if (f.num_blocks < 0 || f.num_blocks > kMaxCount) {
    r.Fail(absl::StrFormat("num_blocks %d is outside [0, %d]", f.num_blocks, kMaxCount));
  }
}

void Write(Writer& w, const SharedBlockFrame& f) {
  w.Number(f.pool_block);
  w.Number(f.generation);
  Write(w, f.block);
}

void Read(Reader& r, SharedBlockFrame& f) {
  r.Count("pool_block", kMaxCount, f.pool_block);
  r.Number("generation", f.generation);
  Read(r, f.block);
}

template <size_t kIndex = 0>
absl::StatusOr<Frame> ReadType(size_t index, std::span<const std::byte> body) {
  if constexpr (kIndex < std::variant_size_v<Frame>) {
    if (index != kIndex) return ReadType<kIndex + 1>(index, body);
    Reader reader(kTypes[index].name, body);
    std::variant_alternative_t<kIndex, Frame> frame;
    Read(reader, frame);
    RETURN_IF_ERROR(reader.Finish());
    return Frame(std::move(frame));
  }
  return absl::InternalError("frame type out of range");
}

}  // namespace

const char* FrameName(const Frame& frame) { return kTypes[frame.index()].name; }

std::string EncodeFrame(const Frame& frame) {
  Writer body;
  std::visit([&](const auto& f) { Write(body, f); }, frame);
  CHECK_LE(body.out().size(), kTypes[frame.index()].max_body_bytes) << FrameName(frame);
  Writer w;
  w.out().reserve(kFrameHeaderBytes + body.out().size());
  w.Number(kMagic);
  w.Number(kFormat);
  w.Number(static_cast<uint8_t>(frame.index() + 1));
  w.Number(uint16_t{0});
  w.Number(static_cast<uint32_t>(body.out().size()));
  w.Number(Crc32c(body.out()));
  w.Number(Crc32c(std::string_view(w.out())));
  w.out().append(body.out());
  return std::move(w.out());
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), kFrameHeaderBytes);
  Reader r("frame header", bytes);
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

absl::Status CheckFingerprintFits(const KvFingerprint& p) {
  for (const auto& [name, text] : {std::pair<const char*, const std::string&>{"model", p.model},
                                   {"backend", p.backend},
                                   {"kv_type", p.kv_type},
                                   {"layout", p.layout},
                                   {"rope", p.rope}}) {
    if (text.size() > kMaxFingerprintText) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "fingerprint %s has %d bytes, the limit is %d", name, text.size(), kMaxFingerprintText));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
