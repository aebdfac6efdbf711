// Copies of blocks for forks, on the CUDA backend.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/block_copy_runs.h"
#include "model/gguf/gguf_reader.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_runner.h"
#include "model/llama/llama_weights.h"
#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

constexpr int32_t kBlocks = 20;
constexpr uint64_t kSeed = 16041;

BlockCopy Copy(int32_t from, int32_t to, int32_t tokens) {
  return {.from = BlockId(from), .to = BlockId(to), .tokens = tokens};
}

TEST(CopyOnWriteOnCuda, AListOfBlocksIsOneLaunch) {
  const auto file = *GgufFile::Open(std::string(BATON_TESTDATA) + "/models/tiny-q4_1.gguf");
  const LlamaConfig config = *ReadLlamaConfig(*file);
  const EmulatorLibrary emulator;
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    // Another order of thread blocks: the copies of a launch have none.
    const auto device =
        CreateEmulatedDevice({.rules = {.order = gpu_emulator::ExecutionOrder::kReverse}});
    const auto weights = *LlamaWeights::Load(*file, config, *device, nullptr);
    const std::vector<int64_t> blocks(1, kBlocks);
    const KvPoolLayout layout = *KvPoolLayout::Create(config.Kv(), kind, 16, blocks);
    const auto bytes = static_cast<size_t>(layout.pool_bytes());
    const auto pool = *device->Allocate(bytes, "pool");
    const auto runner = *LlamaRunner::Create(
        config, *weights, layout, pool->data(), *device,
        {.limits = {
             .max_tokens = 16, .max_sequences = 2, .max_logit_rows = 2, .max_context = 128}});
    std::mt19937_64 random(kSeed);
    std::vector<uint8_t> expected(bytes);
    for (uint8_t& byte : expected) byte = static_cast<uint8_t>(random());
    const auto stream = device->CreateStream();
    stream->Copy(pool->data(), expected.data(), bytes);
    stream->Synchronize();
    const auto expect_launches = [&](const std::vector<BlockCopy>& copies, int64_t launches) {
      for (const std::vector<ByteRun>& runs : BlockCopyRuns(copies, layout)) {
        for (const ByteRun& run : runs) {
          std::copy_n(expected.begin() + run.from, run.bytes, expected.begin() + run.to);
        }
      }
      const gpu_emulator::EmulatorCounters before = emulator.counters();
      ASSERT_TRUE(runner->CopyBlocks(copies).ok());
      const gpu_emulator::EmulatorCounters after = emulator.counters();
      EXPECT_EQ(after.launches - before.launches, launches);
      EXPECT_EQ(after.copies, before.copies);
      EXPECT_TRUE(FromDevice<uint8_t>(*stream, pool->data(), bytes) == expected);
    };
    expect_launches({Copy(0, 1, 16), Copy(0, 2, 5), Copy(3, 4, 1), Copy(9, 8, 11)}, 1);
    // A block that was freed and handed out again: the second copy needs the first one's result.
    expect_launches({Copy(0, 5, 16), Copy(5, 6, 16), Copy(7, 0, 16)}, 2);
    expect_launches({}, 0);
  }
}

}  // namespace
}  // namespace baton
