// The pool of a sliding-window group in a whole engine: its size, its blocks' lives, its sharing.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/model_loader.h"
#include "engine/worker_core.h"
#include "scheduler/scheduler.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/window_engine.h"

namespace baton {
namespace {

TEST(EngineWindowPool, AnEngineOfFewSequencesHasASmallWindowPool) {
  for (const int32_t depth : {1, 2}) {
    EngineOptions options = WindowOptions();
    options.device = depth == 1 ? "cpu" : "cpu-async";
    options.steps_in_flight = depth;
    options.max_running = 2;
    options.max_chunk_tokens = 16;
    options.kv_blocks = 64;
    ExpectReferenceAnswers(options);
    const auto engine = MakeEngine(options);
    const KvGroupStatus window = engine->Status().groups[1];
    EXPECT_LT(window.size.limit, 20);
    EXPECT_EQ(window.window, 24);
    EXPECT_EQ(window.layers, 3);
    EXPECT_EQ(window.kind, KvGroupKind::kSlidingWindow);
  }
}

// A worker with a window pool that is smaller than KvPoolDivision would make it.
class SmallWindowWorker {
 public:
  static constexpr int32_t kBlocks = 100;

  SmallWindowWorker(const EngineOptions& options, int32_t window_blocks)
      : model_(*LoadModel(options)),
        layout_(*KvPoolLayout::Create(model_.info.spec.KvOfType(options.kv_type), options.layout,
                                      options.block_size,
                                      std::vector<int64_t>{kBlocks + 1, window_blocks + 1})),
        memory_(*model_.device->Allocate(static_cast<size_t>(layout_.pool_bytes()), "KV pool")),
        runner_(*model_.weights->CreateRunner(
            layout_, memory_->data(),
            {.limits = {.max_tokens = options.token_budget,
                        .max_sequences = options.max_running,
                        .max_logit_rows = options.max_running,
                        .max_context = kBlocks * options.block_size}})),
        cache_({.num_blocks = kBlocks,
                .block_size = options.block_size,
                .windows = {{.window = 24, .num_blocks = window_blocks}},
                .max_step_tokens = MaxStepTokens(options)},
               &clock_),
        scheduler_({.token_budget = options.token_budget,
                    .max_chunk_tokens = options.max_chunk_tokens,
                    .max_running = options.max_running,
                    .max_waiting = 64,
                    .insert_chunks = true},
                   &cache_),
        core_({.vocabulary = model_.info.spec.vocabulary,
               .context_length = model_.info.spec.context_length,
               .block_size = options.block_size,
               .hash_logits = true,
               .steps_in_flight = options.steps_in_flight},
              &cache_, &scheduler_, runner_.get(), /*transport=*/nullptr, model_.tokenizer.get(),
              &clock_, [] { return uint64_t{7}; }) {}

  // Largest number of sequences that ran at once.
  int32_t Run(const std::vector<GenerateRequest>& requests,
              std::vector<std::shared_ptr<SinkRecord>>& records) {
    for (const GenerateRequest& request : requests) {
      records.push_back(std::make_shared<SinkRecord>());
      core_.AddGenerate(++last_, request, std::make_unique<RecordingSink>(records.back()));
    }
    int32_t most = 0;
    while (!core_.idle()) {
      core_.PollSteps();
      if (core_.has_work()) core_.Step();
      most = std::max(most, scheduler_.running_count());
    }
    EXPECT_EQ(core_.CheckConservation(), absl::OkStatus());
    return most;
  }
  const KvCacheManager& cache() const { return cache_; }

 private:
  SystemClock clock_;
  LoadedModel model_;
  KvPoolLayout layout_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::unique_ptr<ModelRunner> runner_;
  KvCacheManager cache_;
  Scheduler scheduler_;
  WorkerCore core_;
  RequestHandle last_ = 0;
};

TEST(EngineWindowPool, ASmallWindowPoolDelaysRequestsAndChangesNoAnswer) {
  const std::vector<GenerateRequest> requests = Requests();
  for (const int32_t depth : {1, 2}) {
    for (const int32_t window_blocks : {5, 9, 14}) {
      EngineOptions options = WindowOptions();
      options.device = depth == 1 ? "cpu" : "cpu-async";
      options.steps_in_flight = depth;
      options.max_chunk_tokens = 16;
      SmallWindowWorker worker(options, window_blocks);
      std::vector<std::shared_ptr<SinkRecord>> records;
      const int32_t most = worker.Run(requests, records);
      EXPECT_LT(most, static_cast<int32_t>(requests.size()));
      EXPECT_GT(worker.cache().Stats().blocks.never_used, 20) << "group 0 always has room";
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(AnswerOf(*records[i]), Reference(KvType::kF16)[i]) << i;
      }
      std::vector<std::shared_ptr<SinkRecord>> again;
      worker.Run(requests, again);
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(AnswerOf(*again[i]), AnswerOf(*records[i]));
    }
  }
}

TEST(EngineWindowPool, BlocksBehindTheWindowAreFreedWhileTheSequenceRuns) {
  EngineOptions options = WindowOptions();
  options.prefix_cache = false;
  options.max_chunk_tokens = 16;
  const auto engine = MakeEngine(options);
  EngineInspection inspection;  // taken at the first token
  auto sink = std::make_shared<WaitingSink>([&] {
    if (inspection.sequences.empty()) inspection = engine->Inspect();
  });
  engine->Generate(TinyRequest(200, 20, 1), sink);
  ASSERT_TRUE(sink->WaitForEnd().finish.has_value());
  ASSERT_EQ(inspection.sequences.size(), 1u);
  const SequenceInspection& sequence = inspection.sequences[0];
  ASSERT_EQ(sequence.window_blocks.size(), 1u);
  EXPECT_EQ(sequence.window_blocks[0].size(), sequence.blocks.size());
  EXPECT_GT(sequence.blocks.size(), 12u);
  EXPECT_EQ(sequence.window_blocks[0][0], -1);
  EXPECT_LE(inspection.status.groups[1].blocks.owned, 4) << "a window and a step";
  EXPECT_GT(inspection.status.groups[0].blocks.owned, 12);
  ExpectAllHome(*engine);
}

TEST(EngineWindowPool, ForksShareBothGroupsAndAnswerAsSingleRequestsDo) {
  const auto plain = MakeEngine(WindowOptions());
  GenerateRequest request = TinyRequest(45, 14, 7);
  request.sampling.seed = 7;
  std::vector<Answer> alone;
  for (const SinkRecord& record : AskForSeeds(*plain, request, 4)) {
    alone.push_back(AnswerOf(record));
  }
  request.n = 4;
  for (const int32_t depth : {1, 2}) {
    for (const int32_t blocks : {100, 10}) {
      EngineOptions options = WindowOptions();
      options.device = depth == 1 ? "cpu" : "cpu-async";
      options.steps_in_flight = depth;
      options.block_size = 8;
      options.kv_blocks = blocks;
      const auto engine = MakeEngine(options);
      const SinkRecord record = Ask(*engine, request);
      ASSERT_TRUE(record.last_finished) << *record.error;
      for (int32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(AnswerOf(i == 0 ? record : record.others.at(i)), alone[i]) << i;
      }
      EXPECT_EQ(engine->Inspect().status.preemptions > 0, blocks == 10);
      ExpectAllHome(*engine);
    }
  }
}

// A cached prefix matches fully if its window is whole, and matches less otherwise.
TEST(EngineWindowPool, ACachedPrefixIsFoundAgain) {
  const auto engine = MakeEngine(WindowOptions());
  const GenerateRequest request = TinyRequest(100, 4, 2);
  const SinkRecord first = Ask(*engine, request);
  EXPECT_EQ(first.finish->ledger.cached_tokens, 0);
  const SinkRecord again = Ask(*engine, request);
  EXPECT_EQ(again.finish->ledger.cached_tokens, 96);
  EXPECT_EQ(AnswerOf(again), AnswerOf(first));
  GenerateRequest shorter = request;
  shorter.prompt.resize(50);
  EXPECT_EQ(AnswerOf(Ask(*engine, shorter)).tokens.size(), 4u);
  ExpectAllHome(*engine);
}

TEST(EngineWindowPool, ResizingChangesEveryGroupByTheSameRule) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    EngineOptions options = WindowOptions();
    options.layout = layout;
    options.kv_cache_max_mib = 64;
    options.max_running = 4;
    options.max_chunk_tokens = 32;
    const auto engine = MakeEngine(options);
    const std::vector<GenerateRequest> requests = Requests();
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (int round = 0; round < 3; ++round) {
      for (const GenerateRequest& request : requests) {
        sinks.push_back(std::make_shared<WaitingSink>());
        engine->Generate(request, sinks.back());
      }
    }
    const int32_t before = engine->Status().groups[1].size.limit;
    for (const int32_t blocks : {20, 300, 14, 100, 13, 100}) {
      const absl::StatusOr<PoolSize> size = engine->Resize(blocks);
      ASSERT_TRUE(size.ok()) << size.status();
      EXPECT_EQ(size->limit, blocks);
      const EngineStatus status = engine->Inspect().status;
      EXPECT_EQ(status.groups[0].size.limit, blocks);
      EXPECT_LE(status.groups[1].size.limit, blocks);
      EXPECT_EQ(status.groups[1].blocks.total,
                status.groups[1].size.limit + status.groups[1].size.retiring);
    }
    EXPECT_EQ(engine->Status().groups[1].size.limit, before);
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_EQ(AnswerOf(sinks[i]->WaitForEnd()), Reference(KvType::kF16)[i % requests.size()]);
    }
    ASSERT_TRUE(engine->Resize(1).ok());
    const EngineInspection small = engine->Inspect();
    EXPECT_EQ(small.status.groups[1].size.limit, 1);
    EXPECT_EQ(engine->Resize(0).status().code(), absl::StatusCode::kInvalidArgument);
    ExpectAllHome(*engine);
  }
}

}  // namespace
}  // namespace baton
