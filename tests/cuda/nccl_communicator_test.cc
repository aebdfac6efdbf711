// Collectives between emulated GPUs, over NCCL's stand-in (tests/kvtransfer/fake_nccl_group.h).
// Each rank enqueues on a thread of its own, as RankThreads does in a worker.
#include "kernels/cuda/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/shared_library.h"
#include "tests/cuda/emulator_library.h"
#include "tests/kvtransfer/fake_nccl.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr float kUntouched = -7.0f;

float Value(int64_t token, int64_t column) { return static_cast<float>(1000 * token + column + 1); }

FakeNccl& StandIn() {
  SharedLibrary library({EmulatedNcclPath()});
  FakeNcclFunction function = nullptr;
  library.Find(kFakeNcclSymbol, function);
  CHECK(library.status().ok()) << library.status();
  return *function();
}

// The ranks of a group with a stream each.
class Ranks {
 public:
  explicit Ranks(int32_t degree) : group_(*CreateEmulatedGroup(degree)) {
    for (const auto& device : group_.devices) streams_.push_back(device->CreateStream());
  }

  size_t size() const { return streams_.size(); }
  Device& device(size_t rank) const { return *group_.devices[rank]; }
  Stream& stream(size_t rank) const { return *streams_[rank]; }
  Communicator& communicator(size_t rank) const { return *group_.communicators[rank]; }
  TensorRank rank(size_t rank) const { return communicator(rank).rank(); }

  // Calls work(rank) for all ranks at once.
  void ForEach(const std::function<void(size_t)>& work) const {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const DeviceGroup group_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// A rank's columns, in their place or with other values behind each row.
struct Rows {
  Rows(Device& device, TensorRank rank, int64_t tokens, int64_t cols, bool in_place)
      : tokens(tokens), cols(cols) {
    std::vector<float> all(static_cast<size_t>(tokens * cols), kUntouched);
    std::vector<float> own;
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t column = rank.Begin(cols); column < rank.End(cols); ++column) {
        if (in_place) all[static_cast<size_t>(token * cols + column)] = Value(token, column);
        own.push_back(Value(token, column));
      }
      own.insert(own.end(), 3, kUntouched);
    }
    out = ToDevice(device, all);
    x = ToDevice(device, own);
    args = {.x = x->as<float>(),
            .x_stride = rank.Share(cols) + 3,
            .out = out->as<float>(),
            .out_stride = cols,
            .tokens = tokens,
            .cols = cols};
    if (!in_place) return;
    args.x = args.out + rank.Begin(cols);
    args.x_stride = cols;
  }
  std::vector<float> Out(Stream& stream) const {
    return FromDevice<float>(stream, out->data(), static_cast<size_t>(tokens * cols));
  }

  int64_t tokens, cols;
  std::unique_ptr<DeviceBuffer> x, out;
  GatherArgs args;
};

std::vector<float> All(int64_t tokens, int64_t cols, float add = 0) {
  std::vector<float> rows;
  for (int64_t i = 0; i < tokens * cols; ++i) rows.push_back(Value(i / cols, i % cols) + add);
  return rows;
}

TEST(NcclCommunicator, AllRanksGetTheColumnsOfAll) {
  for (const int32_t degree : {2, 3}) {
    const Ranks ranks(degree);
    for (const int64_t tokens : {1, 5}) {
      for (const int64_t cols : {12, 13}) {
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(testing::Message() << degree << " ranks, " << tokens << " x " << cols
                                          << (in_place ? ", in place" : ""));
          std::vector<std::unique_ptr<Rows>> rows(ranks.size());
          ranks.ForEach([&](size_t rank) {
            rows[rank] = std::make_unique<Rows>(ranks.device(rank), ranks.rank(rank), tokens, cols,
                                                in_place);
            ranks.communicator(rank).AllGather(ranks.stream(rank), rows[rank]->args);
          });
          for (size_t rank = 0; rank < ranks.size(); ++rank) {
            EXPECT_EQ(rows[rank]->Out(ranks.stream(rank)), All(tokens, cols)) << "rank " << rank;
          }
        }
      }
    }
    EXPECT_EQ(ranks.communicator(0).Health(), absl::OkStatus());
  }
}

TEST(NcclCommunicator, OnlyRank0GetsWhatIsGathered) {
  const Ranks ranks(3);
  for (const int64_t tokens : {1, 4}) {
    for (const bool in_place : {true, false}) {
      std::vector<std::unique_ptr<Rows>> rows(ranks.size());
      ranks.ForEach([&](size_t rank) {
        rows[rank] =
            std::make_unique<Rows>(ranks.device(rank), ranks.rank(rank), tokens, 14, in_place);
        ranks.communicator(rank).Gather(ranks.stream(rank), rows[rank]->args);
      });
      EXPECT_EQ(rows[0]->Out(ranks.stream(0)), All(tokens, 14));
      const std::vector<float> others = rows[1]->Out(ranks.stream(1));
      EXPECT_EQ(others.front(), kUntouched);
      EXPECT_EQ(others.back(), kUntouched);
    }
  }
}

TEST(NcclCommunicator, TheValuesOfRank0ReplaceThoseOfTheOthers) {
  const Ranks ranks(3);
  std::vector<std::unique_ptr<DeviceBuffer>> rows(ranks.size());
  ranks.ForEach([&](size_t rank) {
    rows[rank] = ToDevice(ranks.device(rank), All(2, 5, static_cast<float>(rank)));
    ranks.communicator(rank).Broadcast(ranks.stream(rank),
                                       {.x = rows[rank]->as<float>(), .tokens = 2, .cols = 5});
  });
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(FromDevice<float>(ranks.stream(rank), rows[rank]->data(), 10), All(2, 5));
  }
}

// Every launch exchanges what the buffers hold then.
TEST(NcclCommunicator, CollectivesAreCapturedIntoGraphs) {
  const Ranks ranks(2);
  std::vector<std::unique_ptr<Rows>> rows(ranks.size());
  std::vector<std::unique_ptr<OpGraph>> graphs(ranks.size());
  ranks.ForEach([&](size_t rank) {
    Stream& stream = ranks.stream(rank);
    rows[rank] = std::make_unique<Rows>(ranks.device(rank), ranks.rank(rank), 3, 7, true);
    const auto enqueue = [&] {
      ranks.communicator(rank).Broadcast(stream,
                                         {.x = rows[rank]->x->as<float>(), .tokens = 1, .cols = 2});
      ranks.communicator(rank).AllGather(stream, rows[rank]->args);
      ranks.communicator(rank).Gather(stream, rows[rank]->args);
    };
    ASSERT_EQ(stream.Prepare(enqueue), absl::OkStatus());
    stream.BeginCapture();
    enqueue();
    graphs[rank] = stream.EndCapture();
  });
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> changed = All(3, 7, static_cast<float>(100 * round));
    ranks.ForEach([&](size_t rank) {
      std::vector<float> own(changed.size(), kUntouched);
      for (int64_t i = 0; i < 21; ++i) {
        const TensorRank of = ranks.rank(rank);
        if (i % 7 >= of.Begin(7) && i % 7 < of.End(7)) own[i] = changed[i];
      }
      ranks.stream(rank).Copy(rows[rank]->out->data(), own.data(), own.size() * sizeof(float));
      ranks.stream(rank).Launch(*graphs[rank]);
    });
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(rows[rank]->Out(ranks.stream(rank)), changed) << "round " << round;
    }
  }
  EXPECT_EQ(ranks.communicator(1).Health(), absl::OkStatus());
}

TEST(NcclCommunicator, AnAbortEndsACollectiveThatWaitsForARank) {
  for (const bool connected : {false, true}) {
    const Ranks ranks(2);
    const Rows rows(ranks.device(0), ranks.rank(0), 2, 6, true);
    const Rows others(ranks.device(1), ranks.rank(1), 2, 6, true);
    if (connected) {
      ranks.ForEach([&](size_t rank) {
        ranks.communicator(rank).AllGather(ranks.stream(rank), rank == 0 ? rows.args : others.args);
        ranks.stream(rank).Synchronize();
      });
    }
    std::thread alone([&] {
      ranks.communicator(0).AllGather(ranks.stream(0), rows.args);
      ranks.stream(0).Synchronize();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ranks.communicator(1).Abort(absl::InternalError("rank 1 is gone"));
    ranks.communicator(0).Abort(absl::InternalError("too late"));
    alone.join();
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ranks.communicator(rank).Health(), absl::InternalError("rank 1 is gone"));
    }
    ranks.communicator(1).AllGather(ranks.stream(1), others.args);  // waits for no rank
    ranks.stream(1).Synchronize();
  }
}

TEST(NcclCommunicator, AnErrorOfNcclEndsTheGroup) {
  const Ranks ranks(2);
  StandIn().sides[1].async_error = kNcclRemoteError;
  const absl::Status health = ranks.communicator(0).Health();
  StandIn().sides[1].async_error = 0;
  EXPECT_THAT(std::string(health.message()), HasSubstr("communicator: fake remote error"));
  EXPECT_EQ(ranks.communicator(1).Health(), health);
}

TEST(NcclCommunicator, AMachineWithFewerGpusIsAnErrorThatNamesBothNumbers) {
  const EmulatorLibrary emulator;
  EXPECT_TRUE(CreateEmulatedGroup(2).ok());
  const absl::StatusOr<DeviceGroup> group =
      CreateCudaDeviceGroup({.index = 1,
                             .driver_libraries = {EmulatorLibrary::Path()},
                             .kernel_library = EmulatorLibrary::Path()},
                            {EmulatedNcclPath()}, 3);
  EXPECT_EQ(group.status(),
            absl::UnavailableError("tensor-parallel is 3, which needs as many CUDA devices from "
                                   "device 1 on, but this machine has 2"));
  EXPECT_THAT(std::string(CreateCudaDeviceGroup({.driver_libraries = {EmulatorLibrary::Path()},
                                                 .kernel_library = EmulatorLibrary::Path()},
                                                {"libnccl-absent.so"}, 2)
                              .status()
                              .message()),
              HasSubstr("tensor-parallel is 2, which needs NCCL: "));
}

}  // namespace
}  // namespace baton
