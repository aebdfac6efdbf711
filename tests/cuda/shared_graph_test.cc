// Decode steps of a runner whose rows share a prefix, on the emulated GPU: which graph they take,
// and that it gives the bits of rows that are computed alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "model/llama/llama_runner.h"
#include "model/shared_prefixes.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using Rows = std::vector<std::vector<float>>;

constexpr int32_t kRows = LlamaRunner::kLeastSharingRows;
constexpr int32_t kBlockSize = 64;

class SharedGraph : public testing::Test {
 protected:
  SharedGraph() {
    // Any finite KV will do: no prompt is computed.
    std::mt19937 random(58);
    std::normal_distribution<float> normal(0, 1);
    const std::span<std::byte> pool = runner_.part(0);
    std::vector<uint16_t> values(pool.size() / 2);
    for (uint16_t& value : values) value = F32ToBF16(normal(random));
    const auto stream = gpu_.device->CreateStream();
    stream->Copy(pool.data(), values.data(), pool.size());
    stream->Synchronize();
    for (int32_t s = 0; s < kRows; ++s) {
      const auto own = runner_.Chunk(s, {}, 0, 0).block_table;
      tables_.emplace_back(own.begin(), own.end());
    }
  }
  // Gives all sequences the first `slots` slots of the first one.
  void Share(int32_t slots) {
    for (auto& table : tables_) {
      std::copy(tables_[0].begin(), tables_[0].begin() + slots / kBlockSize, table.begin());
    }
  }
  // The logits of a step with these sequences. Row s is the token behind `from` + 9 · s slots.
  Rows Step(const std::vector<int32_t>& sequences, int32_t from) {
    StepInput input;
    for (const int32_t s : sequences) {
      const int32_t at = from + 9 * s;
      StepChunk chunk = runner_.Chunk(s, std::span(tokens_).subspan(s, 1), at, 1);
      chunk.block_table = std::span(tables_[s]).first((at + kBlockSize) / kBlockSize);
      input.chunks.push_back(chunk);
    }
    const int64_t graphs = EmulatorLibrary().counters().graph_launches;
    const int64_t launches = emulator_.calls(gpu_emulator::DriverCall::kLaunch);
    const absl::Status ran = runner_.Run(input);
    EXPECT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(EmulatorLibrary().counters().graph_launches - graphs, 1);
    EXPECT_EQ(emulator_.calls(gpu_emulator::DriverCall::kLaunch) - launches, 1);
    Rows rows;
    for (size_t i = 0; i < sequences.size(); ++i) rows.push_back(runner_.Row(static_cast<int>(i)));
    return rows;
  }
  std::vector<int32_t> All() const {
    std::vector<int32_t> all(kRows);
    for (int32_t s = 0; s < kRows; ++s) all[s] = s;
    return all;
  }
  int64_t SharingReplays() const { return runner_.runner->counters().sharing_replays; }

  const TinyModel gpu_{GgufFile::Open(TinyModelPath("bf16")).value(),
                       CreateEmulatedDevice({}, Numerics::kT1Sm90)};
  TinyRunner runner_{gpu_,
                     {.type = KvType::kBF16,
                      .block_size = kBlockSize,
                      .graph_buckets = {1, kRows},
                      .limits = {.max_tokens = kRows,
                                 .max_sequences = kRows,
                                 .max_logit_rows = kRows,
                                 .max_context = kSharedSlots + 4 * kBlockSize}}};
  const EmulatorFaults emulator_;
  const std::vector<TokenId> tokens_ = TinyTokens(kRows, 58);
  std::vector<std::vector<BlockId>> tables_;
};

TEST_F(SharedGraph, RowsThatShareAPrefixHaveTheBitsOfRowsAlone) {
  EXPECT_TRUE(runner_.runner->shares_prefixes());
  const int64_t captures = EmulatorLibrary().counters().captures;
  Share(kSharedSlots);
  for (const int32_t from : {kSharedSlots, kSharedSlots + 130}) {
    const Rows together = Step(All(), from);
    for (int32_t s = 0; s < kRows; ++s) {
      EXPECT_EQ(Step({s}, from)[0], together[s]) << "row " << s << " from slot " << from;
    }
  }
  EXPECT_EQ(SharingReplays(), 2);
  EXPECT_EQ(EmulatorLibrary().counters().captures, captures) << "no step captures a graph";
}

TEST_F(SharedGraph, StepsThatShareTooLittleTakeTheOrdinaryGraph) {
  Share(kSharedSlots - kBlockSize);
  Step(All(), kSharedSlots);  // not a whole group of segments
  Share(kSharedSlots);
  Step({0, 1}, kSharedSlots);             // in the larger batch, too few rows share
  Step(All(), kSharedSlots - kRows * 9);  // the rows are in front of the end of the prefix
  EXPECT_EQ(SharingReplays(), 0);
}

// The comparison can fail: rows that read other blocks than their own have other bits.
TEST_F(SharedGraph, ARowDependsOnItsPrefix) {
  const Rows own = Step({1}, kSharedSlots);
  Share(kSharedSlots);
  EXPECT_NE(Step({1}, kSharedSlots), own);
}

}  // namespace
}  // namespace baton
