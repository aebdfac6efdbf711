// Resizes the pool of a whole engine: answers, memory, refusals, KV events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/cache/literal_event_model.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

struct Shape {
  bool shared;
  KvLayoutKind layout;
};

class PoolResizerTest : public ::testing::TestWithParam<Shape> {
 protected:
  static EngineOptions Options() {
    EngineOptions options = TinyOptions();
    options.transfer_shm = GetParam().shared;
    options.layout = GetParam().layout;
    options.kv_blocks = 64;
    options.kv_cache_max_mib = 64;
    return options;
  }
  static std::unique_ptr<Engine> Make(const EngineOptions& options) {
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
};

TEST_P(PoolResizerTest, AnswersAreTheSameWhileThePoolIsResized) {
  const auto plain = Make(TinyOptions());
  const auto engine = Make(Options());
  constexpr int kRequests = 24;
  std::vector<GenerateRequest> requests;
  std::vector<SinkRecord> want;
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(TinyRequest(10 + i % 7 * 11, 24, i % 5));
    want.push_back(Ask(*plain, requests.back()));
  }
  std::atomic<int> next = 0;
  std::vector<std::thread> askers;
  for (int t = 0; t < 4; ++t) {
    askers.emplace_back([&] {
      for (int i = next++; i < kRequests; i = next++) {
        const SinkRecord got = Ask(*engine, requests[i]);
        ASSERT_TRUE(got.finish.has_value()) << got.error.value_or(absl::OkStatus());
        EXPECT_EQ(got.tokens, want[i].tokens);
        EXPECT_EQ(got.finish->logits_hash, want[i].finish->logits_hash);
      }
    });
  }
  std::mt19937 random(17);
  while (next < kRequests) {
    // Large enough for the largest request alone: 76 + 24 tokens.
    const absl::StatusOr<PoolSize> size = engine->Resize(static_cast<int32_t>(8 + random() % 200));
    ASSERT_TRUE(size.ok()) << size.status();
  }
  for (std::thread& asker : askers) asker.join();
  const PoolSize size = *engine->Resize(8);
  EXPECT_EQ(size.limit, 8);
  EXPECT_EQ(size.retiring, 0);
  const EngineStatus status = engine->Inspect().status;
  EXPECT_EQ(status.cache.blocks.total, 8);
  EXPECT_EQ(status.cache.blocks.owned, 0);
  EXPECT_EQ(status.pool.reserved, size.reserved);
}

TEST_P(PoolResizerTest, MemoryComesAndGoesWithTheBlocks) {
  EngineOptions options = Options();
  options.kv_blocks = 1000;
  options.max_running = 32;
  const auto engine = Make(options);
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < 32; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine->Generate(TinyRequest(400, 8, static_cast<uint64_t>(i)), sinks.back());
  }
  for (const auto& sink : sinks) ASSERT_TRUE(sink->WaitForEnd().finish.has_value());
  const EngineInspection full = engine->Inspect();
  const int64_t block = full.status.bytes_per_block;
  const int64_t used = full.status.cache.blocks.cached;
  ASSERT_GT(used, 700);
  EXPECT_GE(full.resident_pool_bytes, used * block);
  ASSERT_TRUE(engine->Resize(100).ok());
  EXPECT_EQ(engine->Status().pool.limit, 100);
  const EngineInspection small = engine->Inspect();
  // Only whole pages are released. The kernel splits a huge page later, so allow one huge page for
  // each end of a range.
  const int64_t ends = options.layout == KvLayoutKind::kBlockMajor ? 1 : 2 * 4;
  EXPECT_LE(small.resident_pool_bytes, 101 * block + ends * (2 << 20));
  EXPECT_LT(small.resident_pool_bytes, full.resident_pool_bytes / 2);
  ASSERT_TRUE(engine->Resize(1000).ok());
  EXPECT_TRUE(Ask(*engine, TinyRequest(400, 8, 1)).finish.has_value());
}

TEST_P(PoolResizerTest, SizesOutsideTheRangeAreRefusedWithIt) {
  const auto engine = Make(Options());
  const int32_t reserved = engine->Status().pool.reserved;
  EXPECT_GT(reserved, 64);
  for (const int32_t blocks : {-1, 0, reserved + 1}) {
    const absl::Status status = engine->Resize(blocks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(reserved)));
  }
  EXPECT_EQ(engine->Status().pool.limit, 64);
  EXPECT_THAT(engine->StartupReport(), HasSubstr("to grow to"));
}

INSTANTIATE_TEST_SUITE_P(Pools, PoolResizerTest,
                         ::testing::Values(Shape{false, KvLayoutKind::kBlockMajor},
                                           Shape{false, KvLayoutKind::kLayerMajor},
                                           Shape{true, KvLayoutKind::kBlockMajor},
                                           Shape{true, KvLayoutKind::kLayerMajor}));

TEST(PoolResizer, APoolWithoutARangeKeepsItsSize) {
  const auto engine = *Engine::Create(TinyOptions());
  const absl::Status status = engine->Resize(50).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--kv-cache-max-mib"));
}

TEST(PoolResizer, TheRangeMustHoldTheFirstSizeAndBeInMemory) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 1 << 20;
  options.kv_cache_max_mib = 1;
  EXPECT_THAT(std::string(Engine::Create(options).status().message()), HasSubstr("1048576"));
  options.kv_blocks = 10;
  options.kv_cache_max_mib = 1 << 24;
  EXPECT_THAT(std::string(Engine::Create(options).status().message()), HasSubstr("16777216"));
}

TEST(PoolResizer, RemovedBlocksArePublishedAsKvEvents) {
  EngineOptions options = TinyOptions();
  options.kv_cache_max_mib = 64;
  options.kv_events = true;
  const auto engine = *Engine::Create(options);
  for (uint64_t seed = 0; seed < 4; ++seed) Ask(*engine, TinyRequest(200, 4, seed));
  ASSERT_NE(engine->kv_events(), nullptr);
  const auto told = [&] {
    std::set<Hash128> held;
    for (uint64_t i = 1; i <= engine->kv_events()->last(); ++i) {
      ApplyEncoded(*engine->kv_events()->Find(i), held);
    }
    return static_cast<int32_t>(held.size());
  };
  // An inspection runs in a later turn of the loop, so all earlier events are published.
  const int32_t cached = engine->Inspect().status.cache.blocks.cached;
  EXPECT_EQ(told(), cached) << "block size 1: one unit per block";
  ASSERT_GT(told(), 40);
  ASSERT_TRUE(engine->Resize(5).ok());
  const int32_t left = engine->Inspect().status.cache.blocks.cached;
  EXPECT_EQ(told(), left);
  EXPECT_LE(told(), 5);
}

}  // namespace
}  // namespace baton
