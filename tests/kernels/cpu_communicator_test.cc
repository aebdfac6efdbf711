#include "kernels/cpu/cpu_communicator.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

// Ranks with a stream each, and rows whose values name their token and column.
class Ranks {
 public:
  static constexpr int64_t kTokens = 5;

  explicit Ranks(int32_t degree) : communicators(CreateCpuCommunicators(degree)) {
    for (int32_t rank = 0; rank < degree; ++rank) streams.push_back(device_->CreateStream());
  }
  int32_t degree() const { return static_cast<int32_t>(streams.size()); }
  void Synchronize() {
    for (const auto& stream : streams) stream->Synchronize();
  }
  static float Value(int64_t token, int64_t column) {
    return static_cast<float>(1000 * token + column + 1);
  }
  static std::vector<float> All(int64_t cols) {
    std::vector<float> rows;
    for (int64_t i = 0; i < kTokens * cols; ++i) rows.push_back(Value(i / cols, i % cols));
    return rows;
  }
  // The rank's columns, with `gap` other values behind each row.
  std::vector<float> Own(int32_t rank, int64_t cols, int64_t gap) const {
    const TensorRank of = communicators[rank]->rank();
    std::vector<float> rows;
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t i = of.Begin(cols); i < of.End(cols); ++i) rows.push_back(Value(token, i));
      rows.insert(rows.end(), gap, -1.0f);
    }
    return rows;
  }

 private:
  const std::unique_ptr<Device> device_ = *CreateCpuDevice({.threads = 1, .asynchronous = true});

 public:
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Stream>> streams;
};

TEST(TensorRank, SharesAreConsecutiveAndAlmostEqual) {
  for (const int32_t degree : {1, 2, 3, 7, 64}) {
    for (const int64_t total : {64, 65, 100, 49152, 320}) {
      int64_t next = 0;
      for (int32_t rank = 0; rank < degree; ++rank) {
        const TensorRank of{.rank = rank, .degree = degree};
        EXPECT_EQ(of.Begin(total), next);
        EXPECT_GE(of.Share(total), total / degree);
        EXPECT_LE(of.Share(total), total / degree + 1);
        next = of.End(total);
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(CpuCommunicator, AllGatherGivesEveryRankAllColumns) {
  for (const int32_t degree : {1, 2, 3, 5}) {
    Ranks ranks(degree);
    for (const int64_t cols : {12, 7, 64}) {
      std::vector<std::vector<float>> own, all;
      for (int32_t rank = 0; rank < degree; ++rank) {
        own.push_back(ranks.Own(rank, cols, 2));
        all.emplace_back(Ranks::kTokens * cols);
      }
      for (int32_t rank = 0; rank < degree; ++rank) {
        const int64_t share = ranks.communicators[rank]->rank().Share(cols);
        ranks.communicators[rank]->AllGather(*ranks.streams[rank], {.x = own[rank].data(),
                                                                    .x_stride = share + 2,
                                                                    .out = all[rank].data(),
                                                                    .out_stride = cols,
                                                                    .tokens = Ranks::kTokens,
                                                                    .cols = cols});
      }
      ranks.Synchronize();
      for (int32_t rank = 0; rank < degree; ++rank) EXPECT_EQ(all[rank], Ranks::All(cols));
    }
  }
}

// The input is part of the output, and the next op changes it as soon as the collective has run.
TEST(CpuCommunicator, AnInputMayBeOverwrittenAfterItsCollective) {
  constexpr int64_t kCols = 10;
  constexpr int kRounds = 50;
  Ranks ranks(3);
  std::vector<std::vector<float>> rows(3, std::vector<float>(Ranks::kTokens * kCols));
  std::vector<int> wrong(3, 0);
  for (int32_t rank = 0; rank < 3; ++rank) {
    Communicator& communicator = *ranks.communicators[rank];
    const TensorRank of = communicator.rank();
    float* const own = rows[rank].data() + of.Begin(kCols);
    for (int round = 0; round < kRounds; ++round) {
      ranks.streams[rank]->Call([=] {
        for (int64_t token = 0; token < Ranks::kTokens; ++token) {
          std::fill_n(own + token * kCols, of.Share(kCols), static_cast<float>(round));
        }
      });
      communicator.AllGather(*ranks.streams[rank], {.x = own,
                                                    .x_stride = kCols,
                                                    .out = rows[rank].data(),
                                                    .out_stride = kCols,
                                                    .tokens = Ranks::kTokens,
                                                    .cols = kCols});
      ranks.streams[rank]->Call([&rows, &wrong, rank, round] {
        for (const float value : rows[rank]) wrong[rank] += value != static_cast<float>(round);
      });
    }
  }
  ranks.Synchronize();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

TEST(CpuCommunicator, GatherGivesOnlyRank0AllColumns) {
  constexpr int64_t kCols = 8;
  Ranks ranks(3);
  std::vector<std::vector<float>> own;
  std::vector<float> all(Ranks::kTokens * kCols);
  for (int32_t rank = 0; rank < 3; ++rank) own.push_back(ranks.Own(rank, kCols, 0));
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.communicators[rank]->Gather(*ranks.streams[rank],
                                      {.x = own[rank].data(),
                                       .x_stride = ranks.communicators[rank]->rank().Share(kCols),
                                       .out = rank == 0 ? all.data() : nullptr,
                                       .out_stride = kCols,
                                       .tokens = Ranks::kTokens,
                                       .cols = kCols});
  }
  ranks.Synchronize();
  EXPECT_EQ(all, Ranks::All(kCols));
  EXPECT_EQ(own[1], ranks.Own(1, kCols, 0));
}

TEST(CpuCommunicator, BroadcastGivesEveryRankTheRowsOfRank0) {
  constexpr int64_t kCols = 6;
  Ranks ranks(4);
  std::vector<std::vector<float>> rows(4, std::vector<float>(Ranks::kTokens * kCols, -1.0f));
  rows[0] = Ranks::All(kCols);
  for (int32_t rank = 0; rank < 4; ++rank) {
    ranks.communicators[rank]->Broadcast(
        *ranks.streams[rank], {.x = rows[rank].data(), .tokens = Ranks::kTokens, .cols = kCols});
  }
  ranks.Synchronize();
  for (const auto& got : rows) EXPECT_EQ(got, Ranks::All(kCols));
}

TEST(CpuCommunicator, CollectivesAreCapturedAndReplayed) {
  constexpr int64_t kCols = 4;
  Ranks ranks(2);
  std::vector<std::vector<float>> rows(2, std::vector<float>(Ranks::kTokens * kCols));
  std::vector<std::unique_ptr<OpGraph>> graphs;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.streams[rank]->BeginCapture();
    for (int twice = 0; twice < 2; ++twice) {
      ranks.communicators[rank]->Broadcast(
          *ranks.streams[rank], {.x = rows[rank].data(), .tokens = Ranks::kTokens, .cols = kCols});
    }
    graphs.push_back(ranks.streams[rank]->EndCapture());
    EXPECT_EQ(graphs[rank]->op_count(), 2);
  }
  for (int replay = 1; replay <= 3; ++replay) {
    std::fill(rows[0].begin(), rows[0].end(), static_cast<float>(replay));
    for (int32_t rank = 0; rank < 2; ++rank) ranks.streams[rank]->Launch(*graphs[rank]);
    ranks.Synchronize();
    EXPECT_EQ(rows[1], rows[0]);
  }
}

class FixedLimit final : public RowLimit {
 public:
  explicit FixedLimit(int64_t rows) : rows_(rows) {}
  int64_t Rows() override { return rows_; }

 private:
  const int64_t rows_;
};

TEST(CpuCommunicator, ARowLimitLowersOnlyTheRowsOfItsRank) {
  constexpr int64_t kCols = 3;
  Ranks ranks(3);
  std::vector<std::vector<float>> rows(3, std::vector<float>(Ranks::kTokens * kCols, 0.0f));
  rows[0] = Ranks::All(kCols);
  FixedLimit none(0), two(2);
  ranks.streams[0]->LimitRows(&none);
  ranks.streams[1]->LimitRows(&two);
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.communicators[rank]->Broadcast(
        *ranks.streams[rank], {.x = rows[rank].data(), .tokens = Ranks::kTokens, .cols = kCols});
  }
  ranks.Synchronize();
  std::vector<float> first_two = Ranks::All(kCols);
  std::fill(first_two.begin() + 2 * kCols, first_two.end(), 0.0f);
  EXPECT_EQ(rows[1], first_two);
  EXPECT_EQ(rows[2], Ranks::All(kCols));
}

TEST(CpuCommunicator, AbortFreesRanksThatWaitAndKeepsTheFirstReason) {
  Ranks ranks(3);
  std::vector<float> row(4);
  const auto broadcast = [&](int32_t rank) {
    ranks.communicators[rank]->Broadcast(*ranks.streams[rank],
                                         {.x = row.data(), .tokens = 1, .cols = 4});
  };
  EXPECT_TRUE(ranks.communicators[0]->Health().ok());
  broadcast(0);
  broadcast(1);  // rank 2 never comes
  ranks.communicators[2]->Abort(absl::InternalError("first"));
  ranks.communicators[0]->Abort(absl::InternalError("second"));
  ranks.Synchronize();
  for (const auto& communicator : ranks.communicators) {
    EXPECT_EQ(communicator->Health(), absl::InternalError("first"));
  }
  broadcast(2);
  ranks.Synchronize();
}

}  // namespace
}  // namespace baton
