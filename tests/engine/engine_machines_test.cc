#include "engine/engine_machines.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "engine/resizable_pool.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/recording_sinks.h"

namespace baton {
namespace {

class FakePool final : public ResizablePool {
 public:
  explicit FakePool(int32_t max_blocks) : max_blocks_(max_blocks) {}
  bool resizable() const override { return true; }
  int32_t max_blocks(int32_t) const override { return max_blocks_; }
  BlockCounts BlocksFor(int32_t full) const override { return BlockCounts(full); }
  absl::Status Populate(const BlockCounts&) const override { return absl::OkStatus(); }
  void Discard(int32_t, int32_t begin, int32_t end) override { discarded += end - begin; }
  int32_t discarded = 0;

 private:
  const int32_t max_blocks_;
};

class EngineMachinesTest : public ::testing::Test {
 protected:
  static constexpr int32_t kBlocks = 64;
  static constexpr int32_t kBlockSize = 4;

  EngineMachines& Make(CacheKind kind = CacheKind::kRadix) {
    machines_.emplace(EngineMachinesOptions{.cache = {.num_blocks = kBlocks,
                                                      .max_blocks = kBlocks,
                                                      .block_size = kBlockSize,
                                                      .kind = kind,
                                                      .min_prefix_tokens = 8,
                                                      .kv_events = true},
                                            .scheduler = {.token_budget = 32,
                                                          .max_chunk_tokens = 16,
                                                          .max_running = 8,
                                                          .max_waiting = 9},
                                            .vocabulary = kFakeVocabulary,
                                            .context_length = 128,
                                            .kv_type = "f16"},
                      EngineEnvironment{.clock = &clock_,
                                        .layout = pool_.layout(),
                                        .pool = &memory_,
                                        .runner = &runner_,
                                        .transport = nullptr,
                                        .tokenizer = tokenizer_.get(),
                                        .cancellations = &cancellations_,
                                        .watchdog = &watchdog_,
                                        .random_bits = [] { return uint64_t{7}; },
                                        .also_check = [this] { return also_; },
                                        .wake = [this] { ++wakes_; },
                                        .publish = [this] { ++published_; }});
    return *machines_;
  }
  std::shared_ptr<SinkRecord> Answer(int32_t prompt_tokens) {
    GenerateRequest request;
    request.prompt = std::vector<TokenId>(static_cast<size_t>(prompt_tokens), 'a');
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 3;
    auto record = std::make_shared<SinkRecord>();
    machines_->inbox().Generate(std::move(request), std::make_shared<RecordingSink>(record));
    EngineLoop& loop = machines_->loop();
    for (int turn = 0; turn < 100 && !record->ended(); ++turn) {
      loop.Rest();
      loop.Turn();
      if (loop.has_step()) loop.Step();
    }
    return record;
  }

  ManualClock clock_;
  ChainPool pool_{kBlocks + 1, kBlockSize};
  FakeRunner runner_{&pool_};
  FakePool memory_{kBlocks};
  const std::unique_ptr<const Tokenizer> tokenizer_ = MakeByteTokenizer();
  PendingCancellations cancellations_;
  LoopWatchdog watchdog_{&clock_, 1'000'000};
  absl::Status also_;
  int wakes_ = 0;
  int published_ = 0;
  std::optional<EngineMachines> machines_;
};

TEST_F(EngineMachinesTest, ARequestIsAnsweredAndCountedInTheStatus) {
  EngineMachines& machines = Make();
  const auto record = Answer(20);
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_GT(wakes_, 0);
  EXPECT_GT(published_, 1);
  const EngineStatus status = machines.Status();
  EXPECT_EQ(status.block_size, kBlockSize);
  EXPECT_EQ(status.context_length, 128);
  EXPECT_EQ(status.max_running, 8);
  EXPECT_EQ(status.kv_type, "f16");
  EXPECT_EQ(status.layout, KvLayoutKindName(pool_.layout().kind()));
  EXPECT_EQ(status.bytes_per_block, pool_.layout().group(0).bytes_per_block());
  EXPECT_EQ(status.min_prefix_tokens, 8);
  EXPECT_TRUE(status.paged);
  EXPECT_TRUE(status.prefix_cache);
  EXPECT_EQ(status.pool.limit, kBlocks);
  EXPECT_EQ(status.groups.size(), 1u);
  EXPECT_EQ(status.requests, 1);
  EXPECT_EQ(status.prefill_tokens, 20);
  EXPECT_EQ(status.decode_tokens, 2);
  EXPECT_GT(status.cache.blocks.cached, 0);
  EXPECT_FALSE(status.MustDrain());
}

TEST_F(EngineMachinesTest, DerivedOptionsAreSetForAllMachines) {
  EXPECT_EQ(Make().cache().options().max_step_tokens, 16);
  Answer(20);
  EXPECT_EQ(Answer(20)->finish->ledger.cached_tokens, 16);
  EXPECT_NE(machines_->loop().kv_events(), nullptr);
  Make(CacheKind::kChunkOnly);
  Answer(20);
  EXPECT_EQ(Answer(20)->finish->ledger.cached_tokens, 0);
  EXPECT_EQ(machines_->loop().kv_events(), nullptr);
  EXPECT_FALSE(machines_->Status().prefix_cache);
}

TEST(MachinesOptionsOf, TakesEverySettingOfTheEngine) {
  EngineOptions engine;
  engine.kv_blocks = 11;
  engine.block_size = 8;
  engine.cache_kind = CacheKind::kChunkOnly;
  engine.paged = false;
  engine.min_prefix_tokens = 12;
  engine.eviction_policy = EvictionPolicy::kLru;
  engine.high_water = 0.7;
  engine.low_water = 0.3;
  engine.kv_events = true;
  engine.token_budget = 13;
  engine.max_chunk_tokens = 14;
  engine.mixed_prompt_tokens = 9;
  engine.max_running = 15;
  engine.max_waiting = 16;
  engine.context_length = 17;
  engine.hash_logits = true;
  engine.steps_in_flight = 2;
  engine.transfer_timeout_ms = 18;
  engine.layer_pieces = 3;
  engine.kv_type = KvType::kInt8;
  const EngineMachinesOptions machines = MachinesOptionsOf(engine, 300, 22, {{.window = 24}});
  EXPECT_EQ(machines.cache.num_blocks, 11);
  EXPECT_EQ(machines.cache.max_blocks, 22);
  EXPECT_EQ(machines.cache.block_size, 8);
  EXPECT_EQ(machines.cache.kind, CacheKind::kChunkOnly);
  EXPECT_FALSE(machines.cache.paged);
  EXPECT_EQ(machines.cache.min_prefix_tokens, 12);
  EXPECT_EQ(machines.cache.eviction_policy, EvictionPolicy::kLru);
  EXPECT_EQ(machines.cache.high_water, 0.7);
  EXPECT_EQ(machines.cache.low_water, 0.3);
  EXPECT_TRUE(machines.cache.kv_events);
  ASSERT_EQ(machines.cache.windows.size(), 1);
  EXPECT_EQ(machines.cache.windows[0].window, 24);
  EXPECT_EQ(machines.scheduler.token_budget, 13);
  EXPECT_EQ(machines.scheduler.max_chunk_tokens, 14);
  EXPECT_EQ(machines.scheduler.mixed_prompt_tokens, 9);
  EXPECT_EQ(machines.scheduler.max_running, 15);
  EXPECT_EQ(machines.scheduler.max_waiting, 16);
  EXPECT_EQ(machines.vocabulary, 300);
  EXPECT_EQ(machines.context_length, 17);
  EXPECT_TRUE(machines.hash_logits);
  EXPECT_EQ(machines.steps_in_flight, 2);
  EXPECT_EQ(machines.transfer_timeout_ms, 18);
  EXPECT_EQ(machines.layer_pieces, 3);
  EXPECT_EQ(machines.kv_type, "int8");
}

TEST_F(EngineMachinesTest, RetiredMemoryIsReleasedAtThePublication) {
  EngineMachines& machines = Make();
  ASSERT_TRUE(machines.PrepareResize(10).ok());
  const absl::StatusOr<PoolSize> size = machines.Resize(10);
  ASSERT_TRUE(size.ok()) << size.status();
  machines.loop().Turn();
  EXPECT_EQ(memory_.discarded, kBlocks - 10);
  EXPECT_EQ(machines.Status().pool.limit, 10);
}

TEST_F(EngineMachinesTest, AFailedIntegrityCheckDrainsTheWorkerAndRefusesRequests) {
  EngineMachines& machines = Make();
  ASSERT_TRUE(Answer(20)->finish.has_value());
  also_ = absl::InternalError("a block too many");
  clock_.AdvanceUs(IdleIntegrityCheck::kIntervalUs);
  machines.loop().Turn();
  machines.loop().Turn();
  EXPECT_TRUE(machines.Status().MustDrain());
  EXPECT_NE(machines.Status().conservation_error.find("a block too many"), std::string::npos);
  EXPECT_EQ(Answer(20)->error->code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
