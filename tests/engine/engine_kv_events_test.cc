// A whole engine: its KV events and snapshots tell what its prefix cache holds.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/cache/literal_event_model.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

// Blocks that a reader of `engine`'s events, or of a snapshot, knows to be cached.
std::set<Hash128> Told(Engine& engine) {
  std::set<Hash128> held;
  for (uint64_t i = 1; i <= engine.kv_events()->last(); ++i) {
    ApplyEncoded(*engine.kv_events()->Find(i), held);
  }
  return held;
}
std::set<Hash128> SnapshotOf(Engine& engine) {
  std::promise<std::shared_ptr<const KvEventSnapshot>> answer;
  engine.SnapshotKvEvents([&answer](auto snapshot) {
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    answer.set_value(*std::move(snapshot));
  });
  const std::shared_ptr<const KvEventSnapshot> snapshot = answer.get_future().get();
  EXPECT_EQ(snapshot->sequence, engine.kv_events()->last());
  std::set<Hash128> held;
  for (const std::string& part : snapshot->parts) ApplyEncoded(part, held);
  return held;
}

TEST(Engine, PublishesTheContentsOfItsPrefixCache) {
  for (const int32_t block_size : {4, 16, 32}) {
    EngineOptions options = TinyOptions();
    options.block_size = block_size;
    options.kv_blocks = 400 / block_size;  // the second request evicts the first
    options.kv_events = true;
    const auto engine = MakeEngine(options);
    EXPECT_TRUE(SnapshotOf(*engine).empty());
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const GenerateRequest request = TinyRequest(200, 40, seed);
      const SinkRecord answer = Ask(*engine, request);
      std::vector<TokenId> committed = request.prompt;
      committed.insert(committed.end(), answer.tokens.begin(), answer.tokens.end() - 1);
      committed.resize(committed.size() / block_size * block_size);
      const std::set<Hash128> snapshot = SnapshotOf(*engine);
      EXPECT_EQ(Told(*engine), snapshot);
      EXPECT_LE(snapshot.size(), 400u / kUnitsPerHash);
      for (const Hash128& hash :
           ChainedHashes(request.cache_namespace, UnitsFromTokens(committed))) {
        EXPECT_TRUE(snapshot.contains(hash)) << "block size " << block_size << ", seed " << seed;
      }
    }
  }
}

TEST(Engine, PublishesNoKvEventsUnlessEnabledAndWithAPrefixCache) {
  const auto silent = MakeEngine(TinyOptions());
  EXPECT_EQ(silent->kv_events(), nullptr);
  EngineOptions options = TinyOptions();
  options.kv_events = true;
  options.prefix_cache = false;
  const auto without = MakeEngine(options);
  EXPECT_EQ(without->kv_events(), nullptr);
  without->SnapshotKvEvents([](const auto& snapshot) {
    EXPECT_EQ(snapshot.status().code(), absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace baton
