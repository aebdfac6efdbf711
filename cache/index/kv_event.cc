#include "cache/index/kv_event.h"

#include <bit>
#include <cstring>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as stored");
static_assert(sizeof(Hash128) == 16, "hashes are written as stored");

constexpr uint8_t kVersion = 1;

struct BatchHead {
  uint8_t version;
  uint8_t reserved[3];
  uint32_t events;
};
struct EventHead {
  uint8_t kind;
  uint8_t tier;
  uint8_t has_parent;
  uint8_t reserved;
  uint32_t hashes;
};
static_assert(sizeof(BatchHead) == 8 && sizeof(EventHead) == 8, "no padding");

template <typename T>
void Append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool Take(std::string_view& bytes, T* value) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return true;
}

// Says what is wrong with an event's header. Empty if it is valid.
std::string Complaint(const EventHead& head) {
  const auto stored = static_cast<uint8_t>(KvEvent::Kind::kStored);
  const auto cleared = static_cast<uint8_t>(KvEvent::Kind::kCleared);
  if (head.kind < stored || head.kind > cleared) return StrCat("kind ", int{head.kind});
  if (head.tier >= kCacheTiers) return StrCat("tier ", int{head.tier}, " of ", kCacheTiers);
  if (head.has_parent > (head.kind == stored ? 1 : 0)) {
    return StrCat("has_parent ", int{head.has_parent}, " with kind ", int{head.kind});
  }
  if (head.reserved != 0) return StrCat("reserved byte ", int{head.reserved});
  if (head.kind == cleared) {
    return head.hashes == 0 && head.tier == 0 ? "" : "a cleared event has a tier or hashes";
  }
  if (head.hashes == 0 || head.hashes > kMaxHashesPerKvEvent) {
    return StrCat(head.hashes, " hashes, not 1 to ", kMaxHashesPerKvEvent);
  }
  return "";
}

}  // namespace

std::string EncodeKvEvents(std::span<const KvEvent> events) {
  std::string bytes;
  Append(bytes, BatchHead{kVersion, {}, static_cast<uint32_t>(events.size())});
  for (const KvEvent& event : events) {
    const EventHead head{.kind = static_cast<uint8_t>(event.kind),
                         .tier = static_cast<uint8_t>(event.tier),
                         .has_parent = event.parent.has_value(),
                         .reserved = 0,
                         .hashes = static_cast<uint32_t>(event.hashes.size())};
    CHECK_EQ(Complaint(head), "");
    Append(bytes, head);
    if (event.parent) Append(bytes, *event.parent);
    bytes.append(reinterpret_cast<const char*>(event.hashes.data()),
                 event.hashes.size() * sizeof(Hash128));
  }
  CHECK_LE(bytes.size(), kMaxKvEventBatchBytes);
  return bytes;
}

absl::StatusOr<std::vector<KvEvent>> DecodeKvEvents(std::string_view bytes) {
  const size_t size = bytes.size();
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        StrCat("KV events, byte ", size - bytes.size(), " of ", size, ": ", what...));
  };
  if (size > kMaxKvEventBatchBytes) return error("more than ", kMaxKvEventBatchBytes);
  BatchHead batch;
  if (!Take(bytes, &batch)) return error("the batch header is missing");
  if (batch.version != kVersion) return error("unknown version ", int{batch.version});
  for (const uint8_t byte : batch.reserved) {
    if (byte != 0) return error("reserved byte ", int{byte});
  }
  if (batch.events > bytes.size() / sizeof(EventHead)) return error(batch.events, " events");
  std::vector<KvEvent> events;
  events.reserve(batch.events);
  for (uint32_t i = 0; i < batch.events; ++i) {
    EventHead head;
    if (!Take(bytes, &head)) return error("the batch ends before event ", i);
    if (const std::string complaint = Complaint(head); !complaint.empty()) {
      return error("event ", i, ": ", complaint);
    }
    KvEvent& event = events.emplace_back();
    event.kind = static_cast<KvEvent::Kind>(head.kind);
    event.tier = static_cast<CacheTier>(head.tier);
    if (head.has_parent != 0 && !Take(bytes, &event.parent.emplace())) {
      return error("event ", i, ": its parent is missing");
    }
    if (head.hashes > bytes.size() / sizeof(Hash128)) {
      return error("event ", i, ": ", head.hashes, " hashes do not fit in the batch");
    }
    event.hashes.resize(head.hashes);
    if (head.hashes == 0) continue;
    std::memcpy(event.hashes.data(), bytes.data(), head.hashes * sizeof(Hash128));
    bytes.remove_prefix(head.hashes * sizeof(Hash128));
  }
  if (!bytes.empty()) return error(bytes.size(), " bytes after the last event");
  return events;
}

}  // namespace baton
