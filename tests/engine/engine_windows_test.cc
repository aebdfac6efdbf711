// A whole engine over a model with a sliding-window group. Under all conditions, tokens and logits
// are those of the reference, and every block of both groups is released.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "engine/in_process_pair.h"
#include "engine/model_loader.h"
#include "engine/perplexity.h"
#include "engine/worker_core.h"
#include "scheduler/scheduler.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

EngineOptions WindowOptions() {
  EngineOptions options = TinyOptions();
  options.model = TinyModelFile("window-q4_0");
  options.block_size = 16;  // SmallWindowWorker does not settle automatic values
  return options;
}

std::unique_ptr<Engine> Make(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// A sender's blocks stay in a transfer until the receiver has confirmed them, also after the last
// token of the answer.
bool IsBusy(const EngineStatus& status) {
  return status.running > 0 || absl::c_any_of(status.groups, [](const KvGroupStatus& group) {
           return group.blocks.in_transfer + group.blocks.step > 0;
         });
}

// Waits until nothing runs, and checks that every block is free or cached in both groups.
void ExpectAllHome(Engine& engine) {
  EngineStatus status = engine.Inspect().status;
  for (int i = 0; IsBusy(status) && i < 60'000; ++i) {  // a minute or more
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = engine.Inspect().status;
  }
  ASSERT_EQ(status.groups.size(), 2u);
  for (const KvGroupStatus& group : status.groups) {
    EXPECT_EQ(group.blocks.free + group.blocks.cached, group.blocks.total);
    EXPECT_EQ(group.evictable, group.blocks.cached);
    EXPECT_EQ(group.size.retiring, 0);
  }
  EXPECT_EQ(status.conservation_error, "");
}

// Prompts shorter than a window, around its edge, and far beyond it. Answers make the window slide
// further.
std::vector<GenerateRequest> Requests() {
  std::vector<GenerateRequest> requests;
  const int32_t lengths[] = {3, 15, 23, 24, 25, 47, 80, 150};
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    requests.push_back(TinyRequest(lengths[i], 30, i));
    if (i == 3) requests.back().sampling.repetition_penalty = 1.2f;
    if (i == 5) requests.back().sampling.logprobs = 2;
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  uint64_t hash = 0;
  bool operator==(const Answer&) const = default;
};

Answer AnswerOf(const SinkRecord& record) {
  EXPECT_TRUE(record.finish.has_value()) << record.error.value_or(absl::OkStatus());
  if (!record.finish.has_value()) return {};
  return {record.tokens, record.finish->logits_hash};
}

// Answers one request at a time, without a prefix cache.
const std::vector<Answer>& Reference(KvType type) {
  static std::map<KvType, std::vector<Answer>> references;
  std::vector<Answer>& answers = references[type];
  if (!answers.empty()) return answers;
  EngineOptions options = WindowOptions();
  options.kv_type = type;
  options.prefix_cache = false;
  const auto engine = Make(options);
  for (const GenerateRequest& request : Requests())
    answers.push_back(AnswerOf(Ask(*engine, request)));
  ExpectAllHome(*engine);
  return answers;
}

// Sends all requests at once, in two rounds; the second one uses the cache. With `preempted`,
// repeats rounds until some request was preempted, because timing decides how many run at once.
// Returns the engine's final status.
EngineStatus ExpectReferenceAnswers(const EngineOptions& options, bool preempted = false) {
  constexpr int kMostRounds = 50;
  const auto engine = Make(options);
  const std::vector<GenerateRequest> requests = Requests();
  const auto go_on = [&](int round) {
    return round < 2 ||
           (preempted && round < kMostRounds && engine->Inspect().status.preemptions == 0);
  };
  for (int round = 0; go_on(round); ++round) {
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (const GenerateRequest& request : requests) {
      sinks.push_back(std::make_shared<WaitingSink>());
      engine->Generate(request, sinks.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(AnswerOf(sinks[i]->WaitForEnd()), Reference(options.kv_type)[i])
          << "request " << i << " of round " << round;
    }
  }
  ExpectAllHome(*engine);
  return engine->Status();
}

struct Surroundings {
  const char* name;
  std::function<void(EngineOptions&)> set;
};

class EngineWindows : public ::testing::TestWithParam<Surroundings> {};

INSTANTIATE_TEST_SUITE_P(
    Surroundings, EngineWindows,
    ::testing::Values(
        Surroundings{"Batches", [](EngineOptions&) {}},
        Surroundings{"NoPrefixCache", [](EngineOptions& o) { o.prefix_cache = false; }},
        Surroundings{"ChunkOnly", [](EngineOptions& o) { o.cache_kind = CacheKind::kChunkOnly; }},
        Surroundings{"SmallChunks", [](EngineOptions& o) { o.max_chunk_tokens = 5; }},
        Surroundings{"ChunksOfAWindow", [](EngineOptions& o) { o.max_chunk_tokens = 24; }},
        Surroundings{"SmallBudget", [](EngineOptions& o) { o.token_budget = 17; }},
        Surroundings{"BlocksOfOne",
                     [](EngineOptions& o) {
                       o.block_size = 1;
                       o.kv_blocks = 1600;
                     }},
        Surroundings{"BlocksOf64",
                     [](EngineOptions& o) {
                       o.block_size = 64;
                       o.kv_blocks = 25;
                     }},
        Surroundings{"LayerMajor", [](EngineOptions& o) { o.layout = KvLayoutKind::kLayerMajor; }},
        Surroundings{"Contiguous", [](EngineOptions& o) { o.paged = false; }},
        Surroundings{"Eager", [](EngineOptions& o) { o.graph = false; }},
        Surroundings{"Threads", [](EngineOptions& o) { o.threads = 3; }},
        Surroundings{"Plain", [](EngineOptions& o) { o.instruction_set = "plain"; }},
        Surroundings{"Int8", [](EngineOptions& o) { o.kv_type = KvType::kInt8; }},
        Surroundings{"Int8SmallChunksLayerMajor",
                     [](EngineOptions& o) {
                       o.kv_type = KvType::kInt8;
                       o.max_chunk_tokens = 7;
                       o.layout = KvLayoutKind::kLayerMajor;
                     }},
        Surroundings{"Preempted",
                     [](EngineOptions& o) {
                       o.block_size = 8;
                       o.kv_blocks = 26;
                     }},
        Surroundings{"Async", [](EngineOptions& o) { o.device = "cpu-async"; }},
        Surroundings{"AsyncDepthTwo",
                     [](EngineOptions& o) {
                       o.device = "cpu-async";
                       o.steps_in_flight = 2;
                       o.max_chunk_tokens = 11;
                     }},
        Surroundings{"AsyncDepthTwoPreempted",
                     [](EngineOptions& o) {
                       o.device = "cpu-async";
                       o.steps_in_flight = 2;
                       o.block_size = 8;
                       o.kv_blocks = 26;
                       o.max_chunk_tokens = 16;
                     }}),
    [](const auto& info) { return info.param.name; });

TEST_P(EngineWindows, AnswersEqualTheReference) {
  EngineOptions options = WindowOptions();
  GetParam().set(options);
  const bool preempted = std::string_view(GetParam().name).find("Preempted") != std::string::npos;
  const EngineStatus status = ExpectReferenceAnswers(options, preempted);
  EXPECT_EQ(status.preemptions > 0, preempted);
  if (status.prefix_cache && !preempted) {
    EXPECT_GT(status.cache.hit_tokens, 100) << "the second round";
  }
}

TEST(EngineWindowPool, AnEngineOfFewSequencesHasASmallWindowPool) {
  for (const int32_t depth : {1, 2}) {
    EngineOptions options = WindowOptions();
    options.device = depth == 1 ? "cpu" : "cpu-async";
    options.steps_in_flight = depth;
    options.max_running = 2;
    options.max_chunk_tokens = 16;
    options.kv_blocks = 64;
    ExpectReferenceAnswers(options);
    const auto engine = Make(options);
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
  const auto engine = Make(options);
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
  const auto plain = Make(WindowOptions());
  GenerateRequest request = TinyRequest(45, 14, 7);
  std::vector<Answer> alone;
  for (uint64_t i = 0; i < 4; ++i) {
    request.sampling.seed = 7 + i;
    alone.push_back(AnswerOf(Ask(*plain, request)));
  }
  request.sampling.seed = 7;
  request.n = 4;
  for (const int32_t depth : {1, 2}) {
    for (const int32_t blocks : {100, 10}) {
      EngineOptions options = WindowOptions();
      options.device = depth == 1 ? "cpu" : "cpu-async";
      options.steps_in_flight = depth;
      options.block_size = 8;
      options.kv_blocks = blocks;
      const auto engine = Make(options);
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
  const auto engine = Make(WindowOptions());
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
    const auto engine = Make(options);
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

int64_t ComputedBy(Engine& engine) { return engine.Inspect().status.prefill_tokens; }

// The prefill engine's blocks are larger than the decode engine's, or of the same size.
TEST(EngineWindowPair, AnswersEqualTheReferenceIfTheSendersBlocksAreNotSmaller) {
  const std::vector<GenerateRequest> requests = Requests();
  for (const PairTransport transport :
       {PairTransport::kLoopback, PairTransport::kTcp, PairTransport::kShm}) {
    for (const auto& [block_size, prefill] :
         {std::pair(4, KvGeometry{KvLayoutKind::kBlockMajor, 16}),
          {16, KvGeometry{KvLayoutKind::kLayerMajor, 64}},
          {8, KvGeometry{KvLayoutKind::kLayerMajor, 8}}}) {
      EngineOptions options = WindowOptions();
      options.max_chunk_tokens = 24;
      options.block_size = block_size;
      options.kv_blocks = 1600 / block_size;
      const auto created = InProcessPair::Create(options, transport, prefill);
      ASSERT_TRUE(created.ok()) << created.status();
      InProcessPair& pair = **created;
      ASSERT_EQ(pair.prefill().options().block_size, prefill.block_size);
      int64_t prompt_tokens = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto sink = std::make_shared<WaitingSink>();
        pair.Generate(requests[i], sink);
        const SinkRecord record = sink->WaitForEnd();
        EXPECT_EQ(AnswerOf(record), Reference(options.kv_type)[i]) << "request " << i;
        ASSERT_TRUE(record.finish.has_value());
        EXPECT_TRUE(record.finish->ledger.prefilled_elsewhere) << "request " << i;
        prompt_tokens += std::ssize(requests[i].prompt);
      }
      EXPECT_EQ(ComputedBy(pair.decode()), 0);
      EXPECT_GT(ComputedBy(pair.prefill()), prompt_tokens / 2) << "the rest was cached there";
      ExpectAllHome(pair.decode());
      ExpectAllHome(pair.prefill());
    }
  }
}

// The receiver refuses the other direction. The decode engine computes the prompts and uses no
// received block.
TEST(EngineWindowPair, SmallerBlocksOfTheSenderChangeNoAnswer) {
  EngineOptions options = WindowOptions();
  options.block_size = 32;
  options.kv_blocks = 50;
  const auto created = InProcessPair::Create(options, PairTransport::kLoopback,
                                             KvGeometry{KvLayoutKind::kBlockMajor, 8});
  ASSERT_TRUE(created.ok()) << created.status();
  const std::vector<GenerateRequest> requests = Requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto sink = std::make_shared<WaitingSink>();
    (*created)->Generate(requests[i], sink);
    const SinkRecord record = sink->WaitForEnd();
    EXPECT_EQ(AnswerOf(record), Reference(options.kv_type)[i]) << "request " << i;
    ASSERT_TRUE(record.finish.has_value());
    EXPECT_FALSE(record.finish->ledger.prefilled_elsewhere) << "request " << i;
  }
  EXPECT_GT(ComputedBy((*created)->decode()), 0);
  ExpectAllHome((*created)->decode());
  ExpectAllHome((*created)->prefill());
}

TEST(EngineWindowPool, PerplexityDoesNotDependOnBlockSizeOrChunk) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 200; ++i) tokens.push_back((i * 37 + i * i) % 300 + 8);
  double expected = 0;
  for (const int32_t block_size : {1, 16, 64}) {
    for (const int32_t chunk : {9, 128}) {
      EngineOptions options = WindowOptions();
      options.block_size = block_size;
      options.max_chunk_tokens = chunk;
      const LoadedModel model = *LoadModel(options);
      const auto result = MeasurePerplexity(model, options, tokens, nullptr);
      ASSERT_TRUE(result.ok()) << result.status();
      if (expected == 0) expected = result->nll;
      EXPECT_EQ(result->nll, expected);
    }
  }
}

}  // namespace
}  // namespace baton
