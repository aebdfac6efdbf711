// libFuzzer target for KV events. The input is a batch of events. It must give an error, or events
// that encode to the same bytes again. After these events, the index must never report more blocks
// than a naive model.

#include <cstdint>
#include <string_view>

#include "cache/index/kv_event_follower.h"
#include "common/check.h"
#include "tests/cache/literal_prefix_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto events = baton::DecodeKvEvents(bytes);
  if (!events.ok()) return 0;
  CHECK(baton::EncodeKvEvents(*events) == bytes);

  constexpr baton::IndexedWorker kWorker{1};
  baton::GlobalIndex index({.max_blocks = 1 << 10, .expected_blocks = 0, .key_seeds = {}});
  baton::LiteralPrefixModel model;
  for (const baton::KvEvent& event : *events) {
    baton::ApplyKvEvent(kWorker, event, index);
    switch (event.kind) {
      case baton::KvEvent::Kind::kStored:
        model.Stored(kWorker, event.tier, event.hashes);
        break;
      case baton::KvEvent::Kind::kRemoved:
        model.Removed(kWorker, event.tier, event.hashes);
        break;
      case baton::KvEvent::Kind::kCleared:
        model.Cleared(kWorker);
        break;
    }
    CHECK_LE(index.memberships(), model.memberships());
    if (index.refused() == 0) {
      CHECK(index.MatchWorkers(event.hashes) == model.Match(event.hashes));
    }
  }
  return 0;
}
