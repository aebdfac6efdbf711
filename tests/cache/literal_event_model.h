// The simplest model of a reader of KV events: a set of hashes.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "cache/index/kv_event.h"

namespace baton {

// Applies one encoded batch.
inline void ApplyEncoded(std::string_view bytes, std::set<Hash128>& held) {
  const auto events = DecodeKvEvents(bytes);
  ASSERT_TRUE(events.ok()) << events.status();
  for (const KvEvent& event : *events) {
    switch (event.kind) {
      case KvEvent::Kind::kStored:
        held.insert(event.hashes.begin(), event.hashes.end());
        break;
      case KvEvent::Kind::kRemoved:
        for (const Hash128& hash : event.hashes) {
          EXPECT_EQ(held.erase(hash), 1u) << "removed, but was not stored";
        }
        break;
      case KvEvent::Kind::kCleared:
        held.clear();
        break;
    }
  }
}

}  // namespace baton
