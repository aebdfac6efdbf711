// Tests the Llama architecture through the common interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/architecture.h"
#include "model/architectures.h"
#include "tests/model/model_files.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

const Architecture& Llama(const GgufFile& file) { return **FindArchitecture(file); }

TEST(LlamaArchitecture, TheSpecAgreesWithTheFile) {
  const auto file = *GgufFile::Open(TinyModelPath("f32"));
  const auto spec = Llama(*file).ReadSpec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->name, "tiny-f32");
  EXPECT_EQ(spec->vocabulary, 320);
  EXPECT_EQ(spec->context_length, 512);
  EXPECT_EQ(spec->layers, 2);
  EXPECT_EQ(spec->hidden, 64);
  EXPECT_EQ(spec->rope, ReadLlamaConfig(*file)->rope);
  EXPECT_EQ(spec->dimensions, "hidden 64, 4 query and 2 KV heads of 16, feed-forward 96");
  EXPECT_EQ(spec->kv, (KvCacheSpec{.groups = {{.layers = 2, .kv_heads = 2, .head_dim = 16}}}));
  EXPECT_EQ(spec->KvOfType(KvType::kInt8).groups.front(),
            (KvGroupSpec{.layers = 2, .kv_heads = 2, .head_dim = 16, .type = KvType::kInt8}));
}

TEST(LlamaArchitecture, AnInvalidFileIsRefusedByBothReaders) {
  const auto file = *GgufFile::Open(TinyModelPath("f32"));
  const std::string bytes = CopyModel(*file, {"llama.block_count"}).Build();
  const auto wrong = *ParseGguf(bytes);
  const auto device = *CreateCpuDevice({.threads = 1});
  EXPECT_EQ(Llama(*wrong).ReadSpec(*wrong).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Llama(*wrong).Load(*wrong, *device).status().code(), absl::StatusCode::kNotFound);
}

TEST(LlamaArchitecture, ItsRunnerGivesTheBitsOfALlamaRunner) {
  const TinyModel model("q4_1", 1);
  const TinyPool pool;
  const auto tokens = TinyTokens(20, 3);
  const auto expected = TinyRunner(model, pool).Decode(0, tokens, 1, 64);

  const auto weights = *Llama(*model.file).Load(*model.file, *model.device);
  EXPECT_EQ(weights->bytes(), model.weights->bytes());
  const ModelSpec spec = *Llama(*model.file).ReadSpec(*model.file);
  const KvLayout layout =
      *KvLayout::Create(spec.KvOfType(KvType::kF16).groups.front(), pool.layout, 16, 3);
  const auto memory = *model.device->Allocate(static_cast<size_t>(layout.pool_bytes()), "pool");
  const auto runner = *weights->CreateRunner(layout, memory->data(), {.limits = pool.limits});
  const std::vector<BlockId> table = {BlockId(1), BlockId(0)};
  StepInput input;
  input.chunks.push_back(
      {.tokens = tokens, .block_table = table, .logit_rows = 1, .keeps_logits = true});
  const absl::StatusOr<StepId> step = RunStep(*runner, input);
  ASSERT_TRUE(step.ok()) << step.status();
  const auto logits = runner->Logits(*step, 0);
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected[0]);
  EXPECT_EQ(runner->counters().eager_steps, 1);
  EXPECT_EQ(runner->counters().graph_replays, 0);
  EXPECT_GT(runner->counters().table_uploads, 0);
}

TEST(LlamaArchitecture, ItsCostCountsEveryMatrixOnce) {
  constexpr double kHidden = 64, kQ = 4 * 16, kKv = 2 * 16, kFeedForward = 96, kLayers = 2;
  constexpr double kLayer = kHidden * (kQ + 2 * kKv) + kQ * kHidden + 3 * kHidden * kFeedForward;
  for (const char* name : {"f32", "q4_1"}) {
    const auto file = *GgufFile::Open(TinyModelPath(name));
    const auto device = *CreateCpuDevice({.threads = 1});
    const ModelCost cost = (*Llama(*file).Load(*file, *device))->cost();
    EXPECT_EQ(cost.layers.int8 + cost.layers.f32, kLayers * kLayer) << name;
    EXPECT_EQ(cost.head.int8 + cost.head.f32, 320 * kHidden) << name;
    EXPECT_EQ(cost.attention_macs, 2 * kQ * kLayers) << name;
    EXPECT_EQ(cost.layers.int8 > 0, std::string_view(name) == "q4_1") << name;
  }
}

}  // namespace
}  // namespace baton
