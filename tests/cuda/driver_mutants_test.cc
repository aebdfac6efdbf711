// Faults planted in the host code of steps, copies, weights and host functions
// (tests/cuda/driver_mutants.h).
#include "tests/cuda/driver_mutants.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "kernels/ops.h"
#include "kvtransfer/pool/device_copies.h"
#include "model/device_writer.h"
#include "model/llama/llama_runner.h"
#include "tests/cuda/emulator_library.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

// ---- scenarios ----------------------------------------------------------------------------------

absl::Status Compare(bool same) {
  return same ? absl::OkStatus() : absl::DataLossError("the result is wrong");
}

// Three steps of two sequences: their prompts, then two tokens of each by the graph. The last step
// has the sequences in the other order, feeds on tokens that the host does not know yet, and needs
// another block for each of them.
struct ThreeSteps {
  std::vector<std::vector<float>> rows;
  std::vector<TokenId> drawn;
  bool operator==(const ThreeSteps&) const = default;
};

class StepsOfTwoSequences {
 public:
  explicit StepsOfTwoSequences(const TinyModel& model)
      : tiny_(model, {.block_size = kBlockSize, .graph_buckets = {2}}) {}

  // `overlap`: submits the last step before the one before it is collected.
  absl::StatusOr<ThreeSteps> Run(bool overlap) {
    RETURN_IF_ERROR(Submit({0, 1}, /*known=*/true));
    RETURN_IF_ERROR(Collect({0, 1}));
    RETURN_IF_ERROR(Submit({0, 1}, /*known=*/true));
    if (!overlap) RETURN_IF_ERROR(Collect({0, 1}));
    RETURN_IF_ERROR(Submit({1, 0}, /*known=*/!overlap));
    if (overlap) RETURN_IF_ERROR(Collect({0, 1}));
    RETURN_IF_ERROR(Collect({1, 0}));
    return result_;
  }

 private:
  static constexpr int32_t kBlockSize = 4;

  absl::Status Submit(const std::vector<int>& order, bool known) {
    StepInput input;
    std::vector<std::vector<TokenId>> tokens;
    const LogitAddition addition = {.token = 17, .value = 100.0f};
    std::vector<TokenDraw> draws(2);
    draws[0].temperature = 0.0f;
    draws[1].temperature = 0.9f;
    draws[1].key = {.seed = 5, .sample = 0, .position = static_cast<uint64_t>(submitted_)};
    draws[submitted_ % 2].additions = {&addition, 1};
    for (const int s : order) {
      const std::vector<TokenId>& all = tokens_[s];
      const int32_t begin = computed_[s];
      const int32_t count = known ? static_cast<int32_t>(all.size()) - begin : 1;
      tokens.push_back(known ? std::vector<TokenId>(all.begin() + begin, all.end())
                             : std::vector<TokenId>{0});
      computed_[s] += count;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const int s = order[i];
      const auto count = static_cast<int32_t>(tokens[i].size());
      StepChunk& chunk = input.chunks.emplace_back(
          tiny_.Chunk(3 + s, tokens[i], computed_[s] - count, /*logit_rows=*/1));
      const int32_t blocks = (computed_[s] + kBlockSize - 1) / kBlockSize;
      chunk.block_table = chunk.block_table.first(blocks);
      chunk.keeps_logits = true;
      chunk.draws = {&draws[s], 1};
      if (!known) chunk.token_from = DrawnBy{.step = StepId(submitted_), .draw = s};
    }
    ++submitted_;
    return tiny_.runner->Submit(input).status();
  }

  absl::Status Collect(const std::vector<int>& order) {
    const StepId step(++collected_);
    ASSIGN_OR_RETURN(const StepResult collected, tiny_.runner->Collect(step));
    for (size_t i = 0; i < order.size(); ++i) {
      RETURN_IF_ERROR(collected.drawn.at(i).status());
      tokens_[order[i]].push_back(*collected.drawn[i]);
      result_.drawn.push_back(*collected.drawn[i]);
      const std::span<const float> row = tiny_.runner->Logits(step, static_cast<int32_t>(i));
      result_.rows.emplace_back(row.begin(), row.end());
    }
    return absl::OkStatus();
  }

  TinyRunner tiny_;
  std::vector<TokenId> tokens_[2] = {TinyTokens(7, 3), TinyTokens(3, 4)};
  int32_t computed_[2] = {};
  int64_t submitted_ = 0, collected_ = 0;
  ThreeSteps result_;
};

const ThreeSteps& StepsOfTheCpu() {
  static const ThreeSteps steps = [] {
    const TinyModel model("q4_1", 1);
    return *StepsOfTwoSequences(model).Run(/*overlap=*/false);
  }();
  return steps;
}

absl::Status Steps(const Start& start) {
  const TinyModel model(GgufFile::Open(TinyModelPath("q4_1")).value(),
                        CreateEmulatedDevice({}, Numerics::kR1));
  StepsOfTwoSequences steps(model);
  start();
  ASSIGN_OR_RETURN(const ThreeSteps got, steps.Run(/*overlap=*/true));
  return Compare(got == StepsOfTheCpu());
}

std::vector<uint8_t> Bytes(int seed) {
  std::vector<uint8_t> bytes(4096);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + seed * 31 + 1);
  return bytes;
}

// Copies one run between a pool and staging memory, and waits for its end.
absl::Status Transfer(DeviceCopies& copies, PoolCopies::Direction direction,
                      const PoolCopies::Run& run) {
  ASSIGN_OR_RETURN(const uint64_t id, copies.Begin(direction, {&run, 1}));
  for (;;) {
    ASSIGN_OR_RETURN(const bool ended, copies.Ended(id));
    if (ended) return absl::OkStatus();
    std::this_thread::yield();
  }
}

// A step writes KV, the engine learns of it by an event, a transfer copies it out. Then a transfer
// brings other KV, and a step reads it.
absl::Status Transfers(const Start& start) {
  const auto device = CreateEmulatedDevice();
  const auto kv = ToDevice<uint8_t>(*device, Bytes(1));
  const auto pool = ToDevice<uint8_t>(*device, Bytes(2));
  const auto staging = *device->AllocateStaging(4096, "test");
  const auto steps = device->CreateStream();
  const auto written = device->CreateEvent();
  DeviceCopies copies(*device, pool->data());
  const PoolCopies::Run run = {.pool_offset = 0, .staging = staging->data(), .bytes = 4096};
  start();
  const ByteRun whole = {.from = 0, .to = 0, .bytes = 4096};
  device->ops().CopyRuns(*steps, {.from = kv->data(), .to = pool->data(), .runs = {&whole, 1}});
  steps->Record(*written);
  while (!written->Done()) std::this_thread::yield();
  RETURN_IF_ERROR(Transfer(copies, PoolCopies::Direction::kFromPool, run));
  RETURN_IF_ERROR(Compare(std::memcmp(staging->data(), Bytes(1).data(), 4096) == 0));
  std::memcpy(staging->data(), Bytes(3).data(), 4096);
  RETURN_IF_ERROR(Transfer(copies, PoolCopies::Direction::kToPool, run));
  std::memset(staging->data(), 0, 4096);  // the next block arrives in it
  return Compare(FromDevice<uint8_t>(*steps, pool->data(), 4096) == Bytes(3));
}

// A block is copied while no step is in flight. Its source then receives other KV.
absl::Status BlockCopies(const Start& start) {
  const TinyModel model(GgufFile::Open(TinyModelPath("q4_1")).value(),
                        CreateEmulatedDevice({}, Numerics::kR1));
  TinyRunner tiny(model, {});
  const int64_t bytes = tiny.layout().bytes_per_block();
  const auto staging = *model.device->AllocateStaging(static_cast<size_t>(bytes), "test");
  DeviceCopies copies(*model.device, tiny.part(0).data());
  const auto run_of = [&](int64_t block) {
    return PoolCopies::Run{
        .pool_offset = block * bytes, .staging = staging->data(), .bytes = bytes};
  };
  std::memset(staging->data(), 1, static_cast<size_t>(bytes));
  RETURN_IF_ERROR(Transfer(copies, PoolCopies::Direction::kToPool, run_of(3)));
  start();
  const BlockCopy copy = {
      .from = BlockId(3), .to = BlockId(5), .tokens = tiny.layout().block_size()};
  RETURN_IF_ERROR(tiny.runner->CopyBlocks({&copy, 1}));
  std::memset(staging->data(), 2, static_cast<size_t>(bytes));
  RETURN_IF_ERROR(Transfer(copies, PoolCopies::Direction::kToPool, run_of(3)));
  RETURN_IF_ERROR(Transfer(copies, PoolCopies::Direction::kFromPool, run_of(5)));
  const auto bytes_of = [&](int value) {  // a block's padding is not copied
    return std::count(staging->data(), staging->data() + bytes, static_cast<std::byte>(value));
  };
  return Compare(bytes_of(1) > 0 && bytes_of(2) == 0);
}

// Weights are written on a stream of the writer and read on another one.
absl::Status Weights(const Start& start) {
  const auto device = CreateEmulatedDevice();
  const auto reader = device->CreateStream();
  const auto memory = *device->Allocate(4096, "test");
  const auto read = *device->AllocateStaging(4096, "test");
  DeviceWriter writer(*device);
  start();
  for (int seed = 1; seed <= 2; ++seed) {
    RETURN_IF_ERROR(writer.Write(
        memory->data(), 4096, [&](std::byte* to) { std::memcpy(to, Bytes(seed).data(), 4096); }));
    reader->Copy(read->data(), memory->data(), 4096);
    reader->Synchronize();
    RETURN_IF_ERROR(Compare(std::memcmp(read->data(), Bytes(seed).data(), 4096) == 0));
  }
  return absl::OkStatus();
}

// A function of the host runs between two copies of a stream.
absl::Status HostFunctions(const Start& start) {
  const auto device = CreateEmulatedDevice();
  const auto first = ToDevice<uint8_t>(*device, Bytes(1));
  const auto second = ToDevice<uint8_t>(*device, Bytes(2));
  const auto read = *device->AllocateStaging(8192, "test");
  const auto stream = device->CreateStream();
  const auto end = device->CreateEvent();
  start();
  bool in_order = false;
  std::atomic<bool> called = false;
  stream->Copy(read->data(), first->data(), 4096);
  stream->Call([&] {
    in_order = std::memcmp(read->data(), Bytes(1).data(), 4096) == 0;
    called = true;
    called.notify_all();
  });
  called.wait(false);
  stream->Copy(read->data() + 4096, second->data(), 4096);
  stream->Record(*end);
  end->Wait();
  return Compare(in_order && std::memcmp(read->data() + 4096, Bytes(2).data(), 4096) == 0);
}

// Memory is new four times. Each time but the last, a stream fills it at once, as a step does. The
// next wait for cleared memory makes a late clearing happen. Nothing depends on the last one, on
// the waits behind copies to pageable memory, or on that of the destroyed stream.
absl::Status FillNewMemory(Device& device, const std::function<absl::StatusOr<std::byte*>()>& get,
                           const Start& start) {
  const auto kv = ToDevice<uint8_t>(device, Bytes(1));
  const auto stream = device.CreateStream();
  std::vector<std::byte*> filled;
  start();
  for (int i = 0; i < 4; ++i) {
    ASSIGN_OR_RETURN(std::byte* const memory, get());
    if (i == 3) break;
    stream->Copy(memory, kv->data(), 4096);
    filled.push_back(memory);
  }
  for (std::byte* const memory : filled) {
    RETURN_IF_ERROR(Compare(FromDevice<uint8_t>(*stream, memory, 4096) == Bytes(1)));
  }
  return absl::OkStatus();
}

// A KV pool grows while a step runs.
absl::Status PoolGrowth(const Start& start) {
  const auto device = CreateEmulatedDevice();
  constexpr size_t kGrowth = size_t{2} << 20;
  const auto pool = *device->Reserve(4 * kGrowth, "test", false);
  size_t next = 0;
  return FillNewMemory(
      *device,
      [&]() -> absl::StatusOr<std::byte*> {
        RETURN_IF_ERROR(pool->Populate(next, kGrowth));
        next += kGrowth;
        return pool->data() + next - kGrowth;
      },
      start);
}

absl::Status NewMemory(const Start& start) {
  const auto device = CreateEmulatedDevice();
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  return FillNewMemory(
      *device,
      [&]() -> absl::StatusOr<std::byte*> {
        ASSIGN_OR_RETURN(auto buffer, device->Allocate(4096, "test"));
        return buffers.emplace_back(std::move(buffer))->data();
      },
      start);
}

class DriverMutants : public testing::TestWithParam<Scenario> {};

TEST_P(DriverMutants, EachIsCaughtByItsOracle) {
#if defined(BATON_EMULATOR_TSAN) || defined(BATON_EMULATOR_ASAN)
  GTEST_SKIP() << "not run: a sanitizer ends a process in ways of its own";
#endif
  StepsOfTheCpu();  // before the first fork
  ExpectOracles(GetParam());
}

// Without a fault, the result does not depend on the times.
TEST_P(DriverMutants, TheRightProgramPassesWithAllTimesOfItsStreams) {
#if defined(BATON_EMULATOR_TSAN) || defined(BATON_EMULATOR_ASAN)
  GTEST_SKIP() << "not run: a sanitizer ends a process in ways of its own";
#endif
  StepsOfTheCpu();
  EXPECT_EQ(FirstOracleOf(GetParam(), {}, true), '=');
}

// Inputs of a step, in order: draws that feed tokens, draws, additions to logits and their numbers,
// the slot of the drawn tokens, marks of skipped draws, token ids, positions, sequences, runs,
// logit rows, slots, rows' runs, first blocks, tables that changed. Nothing depends on an input
// whose bytes the memory has already, on ids that drawn tokens replace, on first blocks without
// windows, or on marks where no draw is skipped.
const CallOracles kInputsLeftOut = {.call = DriverCall::kListedCopy,
                                    .name = "inputs left out, such as a block table that changed",
                                    .fault = CallFault::kLeftOut,
                                    .letters =
                                        "bbbe=bbb=bbb=b"
                                        "b=bbe=bbb=bbb="
                                        "bb==e==b===bb=b",
                                    .all_times = false};
// Each step copies the drawn tokens and two rows of logits to the host.
const CallOracles kResultsLeftOut = {.call = DriverCall::kCopy,
                                     .name = "results left out",
                                     .fault = CallFault::kLeftOut,
                                     .letters = "bbbbbbbbb",
                                     .all_times = false};
// The first step, without a graph, copies its inputs in the first launch and draws in the last
// three. The last two launches copy the inputs of the steps with graphs. Kernels that come before
// their inputs use indices that happen to be in memory.
const CallOracles kStepLaunchesTooLate = {.call = DriverCall::kLaunch,
                                          .name = "launches in the wrong order",
                                          .fault = CallFault::kLate,
                                          .letters = std::string(31, '*'),
                                          .all_times = false};

// The last waits are those of destroyed streams, which have nothing to do.
INSTANTIATE_TEST_SUITE_P(
    Scenarios, DriverMutants,
    testing::Values(
        Scenario{.name = "steps",
                 .run = &Steps,
                 .streams = {1, 2},
                 .oracles = {LeftOut(DriverCall::kEventSynchronize, "waits", "cbb"),
                             LeftOut(DriverCall::kEventRecord, "records", "sbb"), kInputsLeftOut,
                             kResultsLeftOut, kStepLaunchesTooLate}},
        Scenario{.name = "transfers",
                 .run = &Transfers,
                 .streams = {3, 4},
                 .oracles = {LeftOut(DriverCall::kEventQuery, "queries", "b", true),
                             LeftOut(DriverCall::kEventRecord, "records", "bbb")}},
        Scenario{.name = "block_copies",
                 .run = &BlockCopies,
                 .streams = {2, 3},
                 .oracles = {LeftOut(DriverCall::kStreamSynchronize, "waits", "b==")}},
        Scenario{.name = "weights",
                 .run = &Weights,
                 .streams = {1, 2},
                 .oracles = {LeftOut(DriverCall::kStreamSynchronize, "waits", "bsbs==")}},
        Scenario{.name = "pool_growth",
                 .run = &PoolGrowth,
                 .streams = {0, 2},
                 .oracles = {LeftOut(DriverCall::kStreamSynchronize, "waits", "bbb=====")}},
        Scenario{.name = "new_memory",
                 .run = &NewMemory,
                 .streams = {0, 2},
                 .oracles = {LeftOut(DriverCall::kStreamSynchronize, "waits", "bbb=====")}},
        Scenario{.name = "host_functions",
                 .run = &HostFunctions,
                 .streams = {3},
                 .oracles = {LeftOut(DriverCall::kEventSynchronize, "waits", "b", true),
                             LeftOut(DriverCall::kEventRecord, "records", "bb")}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton
