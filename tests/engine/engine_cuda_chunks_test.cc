// Chunked prompts on the emulated GPU: in every mode, with every repair, asleep and woken. The
// answers have the bits of the CPU's with the same numerics.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/str_cat.h"
#include "engine/engine.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/engine/tiny_chunks.h"

namespace baton {
namespace {

std::vector<ChunkOptions> Repaired(const std::vector<ChunkOptions>& modes,
                                   const std::vector<const char*>& repairs) {
  std::vector<ChunkOptions> all;
  for (ChunkOptions mode : modes) {
    for (const char* name : repairs) {
      mode.repair = *ParseChunkRepair(name);
      all.push_back(mode);
    }
  }
  return all;
}

// The emulator is slow. Repairs of all tokens (first:4096, share:1) have no code of their own.
std::vector<ChunkOptions> EveryModeAndRepair() {
  return Repaired(EveryMode(), {"none", "first:3", "share:0.15"});
}

std::vector<ChunkOptions> SomeModesAndRepairs() {
  const std::vector<ChunkOptions> modes = EveryMode();
  return Repaired({modes.front(), modes.back()}, {"first:3", "share:0.15"});
}

std::string NameOf(const ChunkOptions& mode) {
  return StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope), " ",
                ChunkRepairName(mode.repair));
}

ChunkedPrompt Prompt(const ChunkOptions& mode) { return PromptOf(mode, 11, {37, 20, 16}, 9); }

GenerateRequest Request(const ChunkOptions& mode) {
  GenerateRequest request = RequestOf(Prompt(mode));
  request.sampling.max_tokens = 2;
  return request;
}

EngineOptions OnCuda(const std::string& numerics) {
  EngineOptions options = TinyOptions();
  options.device = "cuda-emulated";
  options.numerics = numerics;
  options.block_size = 16;
  options.context_length = 256;  // on a GPU it limits tokens too
  return options;
}

// Small steps that overlap, and blocks of another size.
EngineOptions InSlices(EngineOptions options) {
  options.token_budget = 7;
  options.steps_in_flight = 2;
  options.block_size = 8;
  options.kv_blocks = 200;
  return options;
}

void ExpectColdAndWarm(Engine& engine, const ChunkOptions& mode, const SinkRecord& expected) {
  ExpectSame(Ask(engine, Request(mode)), expected);
  const SinkRecord warm = Ask(engine, Request(mode));
  ExpectSame(warm, expected);
  EXPECT_EQ(warm.finish->ledger.chunk.hits, 3);
}

void ExpectTheBitsOfTheCpu(const EngineOptions& options, const std::vector<ChunkOptions>& modes) {
  EmulatorLibrary().Configure({});
  EngineOptions on_cpu = options;
  on_cpu.device = "cpu";
  const auto cpu = MakeEngine(on_cpu);
  const auto cuda = MakeEngine(options);
  const auto sliced = MakeEngine(InSlices(options));
  for (const ChunkOptions& mode : modes) {
    SCOPED_TRACE(NameOf(mode));
    const SinkRecord expected = Ask(*cpu, Request(mode));
    ExpectColdAndWarm(*cuda, mode, expected);
    ExpectColdAndWarm(*sliced, mode, expected);
  }
  const ChunkedPrompt last = Prompt(modes.back());
  ExpectSameBesideOthers(*cuda, last, Ask(*cpu, RequestOf(last)));
}

TEST(EngineChunksOnCuda, EveryModeAndRepairHasTheBitsOfTheCpuOnEveryPath) {
  ExpectTheBitsOfTheCpu(OnCuda("r1"), EveryModeAndRepair());
}

TEST(EngineChunksOnCuda, RepairsOfInt8KvHaveTheBitsOfTheCpu) {
  EngineOptions options = OnCuda("r1");
  options.kv_type = KvType::kInt8;
  ExpectTheBitsOfTheCpu(options, SomeModesAndRepairs());
}

TEST(EngineChunksOnCuda, RepairsOnTensorCoresHaveTheBitsOfTheirTwin) {
  ExpectTheBitsOfTheCpu(OnCuda("t1-sm90"), SomeModesAndRepairs());
}

TEST(EngineChunksOnCuda, RepairsTakeNoDeviceMemoryAndLookUpNoKernels) {
  EmulatorLibrary().Configure({});
  const EmulatorFaults emulator;
  const auto engine = MakeEngine(OnCuda("r1"));
  const int64_t allocations = EmulatorLibrary().counters().allocations;
  const int64_t kernels = emulator.calls(gpu_emulator::DriverCall::kFindKernel);
  for (const ChunkOptions& mode : SomeModesAndRepairs()) Ask(*engine, Request(mode));
  EXPECT_EQ(EmulatorLibrary().counters().allocations, allocations);
  EXPECT_EQ(emulator.calls(gpu_emulator::DriverCall::kFindKernel), kernels);
}

TEST(EngineChunksOnCuda, WokenChunksGiveTheBitsOfTheColdPath) {
  EmulatorLibrary().Configure({});
  for (const bool compress : {false, true}) {
    EngineOptions options = OnCuda("r1");
    const auto plain = MakeEngine(options);
    options.chunk_host_mib = 64;
    options.chunk_sleep_after_s = 0;
    options.chunk_sleep_uses = 1000;
    options.chunk_compress = compress;
    const auto engine = MakeEngine(options);
    for (const ChunkOptions& mode : EveryMode()) {
      SCOPED_TRACE(StrCat(NameOf(mode), compress ? ", compressed" : ""));
      const SinkRecord cold = Ask(*plain, Request(mode));
      const int64_t sleeps = engine->Status().sleeping_chunks.sleeps;
      ExpectSame(Ask(*engine, Request(mode)), cold);
      while (engine->Status().sleeping_chunks.sleeps < sleeps + 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const SinkRecord woken = Ask(*engine, Request(mode));
      ExpectSame(woken, cold);
      EXPECT_EQ(woken.finish->ledger.chunk.hits, 3);
      EXPECT_GT(woken.finish->ledger.chunk.wake_us, 0);
      EXPECT_EQ(engine->Status().sleeping_chunks.damaged, 0);
    }
  }
}

}  // namespace
}  // namespace baton
