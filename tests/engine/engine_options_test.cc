#include "engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/create_device.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EngineOptions, EverySettingTakesItsOwnDefaultAndHasAName) {
  EngineOptions options;
  SettingList list;
  RegisterSettings(options, list);
  std::set<std::string> names;
  for (const Setting& setting : list.settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_EQ(setting.get(), setting.default_value) << setting.name;
    EXPECT_TRUE(setting.set(setting.default_value).ok()) << setting.name;
  }
}

TEST(EngineOptions, TheContextIsLimitedToTheModelsContext) {
  EngineOptions options;
  EXPECT_TRUE(SettleContextLength(options, 8192).ok());
  EXPECT_EQ(options.context_length, 8192);
  options.context_length = 4096;
  EXPECT_TRUE(SettleContextLength(options, 8192).ok());
  EXPECT_EQ(options.context_length, 4096);
  options.context_length = 9000;
  const absl::Status status = SettleContextLength(options, 8192);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("9000"), HasSubstr("8192")));
}

TEST(EngineOptions, TheDefaultPoolIsBetweenItsBounds) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(DefaultKvCacheMiB(10 * kMiB), 64);
  EXPECT_EQ(DefaultKvCacheMiB(2000 * kMiB), 500);
  EXPECT_EQ(DefaultKvCacheMiB(100'000 * kMiB), 1024);
  EXPECT_EQ(DefaultKvCacheMiB(-1), 1024) << "available memory is unknown";
}

TEST(EngineOptions, SettingsReachTheirFields) {
  EngineOptions options;
  SettingList list;
  RegisterSettings(options, list);
  ASSERT_TRUE(list.Set("kv-type", "bf16").ok());
  ASSERT_TRUE(list.Set("kv-layout", "layer-major").ok());
  ASSERT_TRUE(list.Set("block-size", "32").ok());
  ASSERT_TRUE(list.Set("kv-blocks", "77").ok());
  ASSERT_TRUE(list.Set("paged", "off").ok());
  ASSERT_TRUE(list.Set("hash-logits", "on").ok());
  ASSERT_TRUE(list.Set("token-budget", "99").ok());
  ASSERT_TRUE(list.Set("max-chunk-tokens", "98").ok());
  EXPECT_EQ(options.kv_type, KvType::kBF16);
  EXPECT_EQ(options.layout, KvLayoutKind::kLayerMajor);
  EXPECT_EQ(options.block_size, 32);
  EXPECT_EQ(options.kv_blocks, 77);
  EXPECT_FALSE(options.paged);
  EXPECT_TRUE(options.hash_logits);
  EXPECT_EQ(options.token_budget, 99);
  EXPECT_EQ(options.max_chunk_tokens, 98);
}

TEST(EngineOptions, AGpusDefaultPoolLeavesATenthOfItsMemory) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(DefaultGpuKvCacheMiB(80'000 * kMiB), 72'000);
  EXPECT_EQ(DefaultGpuKvCacheMiB(0), 1);
}

TEST(EngineOptions, DefaultsAreTheCpus) {
  const auto cpu = CreateDevice({.threads = 1});
  ASSERT_TRUE(cpu.ok());
  EngineOptions options;
  SettleForDevice(options, **cpu);
  EXPECT_EQ(options.block_size, 16);
  EXPECT_EQ(options.mixed_prompt_tokens, 128);
  EXPECT_EQ(options.steps_in_flight, 1);
  options.block_size = 8;
  options.mixed_prompt_tokens = 700;
  SettleForDevice(options, **cpu);
  EXPECT_EQ(options.block_size, 8);
  EXPECT_EQ(options.mixed_prompt_tokens, 700);
}

TEST(EngineOptions, AValueOutOfRangeIsNamedWithItsRange) {
  EngineOptions options;
  SettingList list;
  RegisterSettings(options, list);
  EXPECT_THAT(list.Set("block-size", "256").message(),
              AllOf(HasSubstr("block-size"), HasSubstr("256"), HasSubstr("128")));
  EXPECT_FALSE(list.Set("token-budget", "0").ok());
  EXPECT_FALSE(list.Set("max-running", "0").ok());
  EXPECT_FALSE(list.Set("kv-blocks", "-1").ok());
  EXPECT_FALSE(list.Set("kv-type", "f8").ok());
  EXPECT_EQ(options.block_size, 0);
}

TEST(EngineOptions, TheOldAndTheNewSwitchOfTheCacheAgreeOnceSettled) {
  EngineOptions options;
  ASSERT_TRUE(SettleCacheOptions(options).ok());
  EXPECT_TRUE(options.prefix_cache);
  options.cache_kind = CacheKind::kChunkOnly;
  ASSERT_TRUE(SettleCacheOptions(options).ok());
  EXPECT_FALSE(options.prefix_cache) << "nothing is shared between requests";
  EXPECT_EQ(options.cache_kind, CacheKind::kChunkOnly);

  EngineOptions off;
  off.prefix_cache = false;
  ASSERT_TRUE(SettleCacheOptions(off).ok());
  EXPECT_EQ(off.cache_kind, CacheKind::kNaive);

  EngineOptions contiguous;
  contiguous.paged = false;
  contiguous.cache_kind = CacheKind::kChunkOnly;
  ASSERT_TRUE(SettleCacheOptions(contiguous).ok());
  EXPECT_EQ(contiguous.cache_kind, CacheKind::kNaive);
  EXPECT_EQ(contiguous.layout, KvLayoutKind::kLayerMajor);
}

TEST(EngineOptions, AHighWaterMarkBelowTheLowOneIsRefused) {
  EngineOptions options;
  options.high_water = 0.5;
  EXPECT_THAT(SettleCacheOptions(options).ToString(),
              AllOf(HasSubstr("cache-low-water 0.8"), HasSubstr("cache-high-water 0.5")));
}

}  // namespace
}  // namespace baton
