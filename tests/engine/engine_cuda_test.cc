// The engine on the emulated GPU: memory, graphs, and what happens when the GPU fails or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/str_cat.h"
#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "engine/peer_transport.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMiB = size_t{1} << 20;

EngineOptions CudaOptions() {
  EngineOptions options = TinyOptions();
  options.device = "cuda-emulated";
  options.block_size = 16;  // so that prompts fill blocks
  options.numerics = "r1";
  options.block_size = 16;  // prompts fill blocks, so that the cache keeps them
  options.max_running = 9;
  options.token_budget = 64;
  options.max_chunk_tokens = 32;
  options.context_length = 512;
  return options;
}

// Prompts of several chunks, draws on the device and on the host, several choices, many additions.
std::vector<GenerateRequest> MixedRequests() {
  std::vector<GenerateRequest> requests;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    requests.push_back(TinyRequest(static_cast<int32_t>(13 * seed), 4, seed));
  }
  requests[0].n = 3;
  requests[2].sampling.repetition_penalty = 1.2f;
  for (TokenId token = 20; token < 36; ++token) requests[3].sampling.logit_bias[token] = -1.0f;
  return requests;
}

std::string Answer(SinkRecord record) {
  std::string answer = record.error ? record.error->ToString() : "";
  for (int32_t choice = 0; choice <= static_cast<int32_t>(record.others.size()); ++choice) {
    for (const TokenId token : record.Choice(choice).tokens) answer += StrCat(" ", token);
    answer += ";";
  }
  return answer;
}

// Answers all requests at once. Returns the token ids of each request, or its error.
std::vector<std::string> AskAll(Engine& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (const GenerateRequest& request : requests) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine.Generate(request, sinks.back());
  }
  std::vector<std::string> answers;
  for (const auto& sink : sinks) answers.push_back(Answer(sink->WaitForEnd()));
  return answers;
}

std::vector<std::string> AnswersOfTheCpu(const std::vector<GenerateRequest>& requests) {
  EngineOptions options = CudaOptions();
  options.device = "cpu";
  const auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return AskAll(**engine, requests);
}

TEST(EngineOnCuda, GraphsOfAllBucketsAreCapturedAtStartAndNeverAgain) {
  EmulatorLibrary().Configure({});
  const auto engine = Engine::Create(CudaOptions());
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(EmulatorLibrary().counters().captures, 9) << "batches of 1 to 9";
  EXPECT_EQ(EmulatorLibrary().counters().graph_launches, 0);
  const std::vector<std::string> first = AskAll(**engine, MixedRequests());
  const auto freed = (*engine)->ClearCache(std::nullopt);
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_GT(*freed, 0);
  EXPECT_EQ(AskAll(**engine, MixedRequests()), first);
  EXPECT_GT(EmulatorLibrary().counters().graph_launches, 0);
  EXPECT_EQ(EmulatorLibrary().counters().captures, 9);
}

TEST(EngineOnCuda, AResizedPoolNeedsNoNewGraph) {
  EmulatorLibrary().Configure({});
  EngineOptions options = CudaOptions();
  options.kv_blocks = 40;
  options.kv_cache_max_mib = 8;
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<std::string> first = AskAll(**engine, MixedRequests());
  ASSERT_TRUE((*engine)->Resize(90).ok());
  EXPECT_EQ(AskAll(**engine, MixedRequests()), first);
  EXPECT_EQ(EmulatorLibrary().counters().captures, 9);
}

TEST(EngineOnCuda, StepsTakeNoDeviceMemoryAndLookUpNoKernels) {
  EmulatorLibrary().Configure({});
  const EmulatorFaults emulator;
  for (const int32_t steps : {1, 2}) {
    EngineOptions options = CudaOptions();
    options.graph = steps == 1;
    options.steps_in_flight = steps;
    const auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const int64_t allocations = EmulatorLibrary().counters().allocations;
    const int64_t kernels = emulator.calls(gpu_emulator::DriverCall::kFindKernel);
    EXPECT_GT(allocations, 0);
    EXPECT_GT(kernels, 0);
    AskAll(**engine, MixedRequests());
    EXPECT_EQ(EmulatorLibrary().counters().allocations, allocations);
    EXPECT_EQ(emulator.calls(gpu_emulator::DriverCall::kFindKernel), kernels);
  }
}

// With every size of device memory, the start is refused with both sizes, or all steps succeed. A
// pool of few blocks may still cut answers short.
TEST(EngineOnCuda, LittleMemoryRefusesTheStartOrAllStepsSucceed) {
  const std::vector<GenerateRequest> requests = MixedRequests();
  const std::vector<std::string> expected = AnswersOfTheCpu(requests);
  int refused = 0;
  int served = 0;
  for (const int32_t kv_blocks : {0, 60}) {
    for (const size_t mib : {1, 2, 3, 4, 5, 6, 8, 12, 20}) {
      EmulatorLibrary().Configure({.memory_bytes = mib * kMiB});
      EngineOptions options = CudaOptions();
      options.kv_blocks = kv_blocks;
      const auto engine = Engine::Create(options);
      if (engine.ok()) {
        ++served;
        const std::vector<std::string> answers = AskAll(**engine, requests);
        if ((*engine)->options().kv_blocks >= 60) {
          EXPECT_EQ(answers, expected) << mib << " MiB";
        }
        EXPECT_THAT(answers, Each(Not(AnyOf(HasSubstr("UNAVAILABLE"), HasSubstr("INTERNAL")))));
        EXPECT_TRUE((*engine)->DeviceHealth().ok()) << (*engine)->DeviceHealth();
      } else {
        ++refused;
        EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted) << engine.status();
        EXPECT_THAT(std::string(engine.status().message()),
                    AnyOf(AllOf(HasSubstr("blocks of KV need"), HasSubstr("MiB available")),
                          AllOf(HasSubstr("cannot allocate"), HasSubstr("bytes are available"))));
      }
    }
  }
  EXPECT_GT(refused, 3);
  EXPECT_GT(served, 3);
}

TEST(EngineOnCuda, ThePoolTakesNinetyPercentOfWhatStepsLeave) {
  EmulatorLibrary().Configure({.memory_bytes = 256 * kMiB});
  EngineOptions options = CudaOptions();
  options.kv_blocks = 0;
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const int64_t mib = (*engine)->options().kv_cache_mib;
  EXPECT_GT(mib, 256 * 8 / 10);
  EXPECT_LE(mib, 256 * 9 / 10);
  EXPECT_EQ((*engine)->Status().pool.reserved, (*engine)->options().kv_blocks);
}

// ---- faults -------------------------------------------------------------------------------------

TEST(EngineOnCuda, AFailedGpuEndsRequestsAsUnavailable) {
  const std::vector<GenerateRequest> requests = MixedRequests();
  const std::vector<std::string> expected = AnswersOfTheCpu(requests);
  for (const int32_t steps : {1, 2}) {
    EmulatorLibrary().Configure({});
    EngineOptions options = CudaOptions();
    options.steps_in_flight = steps;
    const auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)->DeviceHealth().ok());
    EXPECT_TRUE((*engine)->CheckWatchdog().ok());
    EmulatorLibrary().FailAfter(150);
    int failed = 0;
    for (const std::string& answer : AskAll(**engine, requests)) {
      failed +=
          answer.starts_with("UNAVAILABLE: this worker cannot compute any more: CUDA device 0");
    }
    EXPECT_GT(failed, 0);
    const std::vector<std::string> later = AskAll(**engine, {TinyRequest(5, 3, 1)});
    EXPECT_THAT(later[0], HasSubstr("UNAVAILABLE: this worker cannot compute any more"));
    EXPECT_EQ((*engine)->DeviceHealth().code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(absl::IsUnavailable((*engine)->CheckWatchdog()));
  }
}

// Polls for a minute: a guard against hangs.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(EngineOnCuda, TheWatchdogNoticesAKernelThatNeverEnds) {
  for (const int32_t steps : {1, 2}) {
    for (const int64_t kernels : {3, 200}) {  // in the prompt's step, in a later graph
      EmulatorLibrary().Configure({});
      EngineOptions options = CudaOptions();
      options.steps_in_flight = steps;
      options.op_stall_ms = 500;
      const auto engine = Engine::Create(options);
      ASSERT_TRUE(engine.ok()) << engine.status();
      const auto hangs = [&] { return absl::IsUnavailable((*engine)->CheckWatchdog()); };
      EmulatorLibrary().HangAfter(kernels);
      const auto sink = std::make_shared<WaitingSink>();
      (*engine)->Generate(TinyRequest(5, 20, 1), sink);
      EXPECT_TRUE(Eventually(
          [&] { return hangs() && EmulatorLibrary().counters().launches == kernels + 1; }));
      const auto other = std::make_shared<WaitingSink>();
      (*engine)->Generate(TinyRequest(5, 3, 2), other);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_TRUE(Eventually(hangs)) << "more requests do not hide it";
      EmulatorLibrary().EndHang();
      EXPECT_FALSE(sink->WaitForEnd().error.has_value());
      EXPECT_FALSE(other->WaitForEnd().error.has_value());
      EXPECT_TRUE(Eventually([&] { return !hangs(); })) << "the engine makes progress again";
    }
  }
}

// ---- transports ---------------------------------------------------------------------------------

// Blocks of the model with two KV groups travel as two blocks.
TEST(EngineOnCuda, SharedMemoryCarriesTheKvOfAPair) {
  for (const char* const model : {"q4_1", "window-q4_0"}) {
    EngineOptions options = CudaOptions();
    options.model = TinyModelFile(model);
    options.max_chunk_tokens = 24;
    EngineOptions on_cpu = options;
    on_cpu.device = "cpu";
    const auto cpu = Engine::Create(on_cpu);
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    EmulatorLibrary().Configure({});
    const auto pair = InProcessPair::Create(options, PairTransport::kShm,
                                            KvGeometry{KvLayoutKind::kLayerMajor, 32});
    ASSERT_TRUE(pair.ok()) << pair.status();
    for (int round = 0; round < 2; ++round) {  // the second round uses the caches
      std::vector<GenerateRequest> requests;
      std::vector<std::shared_ptr<WaitingSink>> sinks;
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        requests.push_back(TinyRequest(static_cast<int32_t>(23 * seed + 5 * round), 4, seed));
        sinks.push_back(std::make_shared<WaitingSink>());
        (*pair)->Generate(requests.back(), sinks.back());
      }
      const std::vector<std::string> expected = AskAll(**cpu, requests);
      for (size_t i = 0; i < sinks.size(); ++i) {
        EXPECT_EQ(Answer(sinks[i]->WaitForEnd()), expected[i]);
      }
    }
    const MovedKvBytes::Totals moved = (*pair)->decode().Inspect().status.moved_kv;
    EXPECT_GT(moved.received[static_cast<size_t>(KvMedium::kShm)], 0);
    EXPECT_EQ(moved.received[static_cast<size_t>(KvMedium::kTcp)], 0);
    EXPECT_GT((*pair)->decode().Inspect().status.kv_bytes_through_host, 0);
  }
}

TEST(EngineOnCuda, WithoutPinnedSharedMemoryItUsesTcpOrSaysWhy) {
  EmulatorLibrary().Configure({});
  gpu_emulator::EmulatedCallFaults& faults = EmulatorLibrary().call_faults();
  faults.register_result = kCuNotPermitted;
  EngineOptions options = CudaOptions();
  options.transfer_shm = true;
  const absl::Status status = Engine::Create(options).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("pinned shared memory"), HasSubstr("cuMemHostRegister")));
  options.transfer_listen = "127.0.0.1:0";
  const auto engine = Engine::Create(options);
  faults.register_result = kCuSuccess;
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_FALSE((*engine)->options().transfer_shm);
  EXPECT_TRUE((*engine)->DeviceHealth().ok()) << "the device is not to blame";
}

// NCCL upgrades a TCP connection, so shared memory must not come first.
TEST(EngineOnCuda, AutoDoesNotUseSharedMemory) {
  EmulatorLibrary().Configure({});
  EngineOptions options = CudaOptions();
  UseMedium(TransferMediumNames().front().second, "127.0.0.1:0", options);
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_FALSE((*engine)->options().transfer_shm);
  EXPECT_TRUE((*engine)->options().transfer_nccl);
}

// ---- defaults -----------------------------------------------------------------------------------

TEST(EngineOnCuda, DefaultsAreAGpus) {
  const auto device = CreateEmulatedDevice();
  EngineOptions options;
  SettleForDevice(options, *device);
  EXPECT_EQ(options.block_size, 64);
  EXPECT_EQ(options.mixed_prompt_tokens, options.token_budget);
  EXPECT_EQ(options.steps_in_flight, 2);
}

}  // namespace
}  // namespace baton
