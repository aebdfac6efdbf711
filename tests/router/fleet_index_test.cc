#include "router/fleet_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr IndexedWorker kA{1}, kB{2};
constexpr Epoch kEpoch{7};
constexpr int64_t kPatienceUs = 1000;
const std::vector<Hash128> kChain = {{1, 2}, {3, 4}, {5, 6}};

std::string Stored(std::span<const Hash128> hashes) {
  const KvEvent event{.kind = KvEvent::Kind::kStored,
                      .parent = std::nullopt,
                      .hashes = {hashes.begin(), hashes.end()}};
  return EncodeKvEvents({&event, 1});
}

class FleetIndexTest : public testing::Test {
 protected:
  FleetIndexTest() : index_({.max_units = 1000, .patience_us = kPatienceUs, .key_seeds = {}}) {
    index_.Add(kA, kEpoch, 0);
  }
  absl::Status First(uint64_t last, IndexedWorker worker = kA) {
    return index_.Take(worker, {.epoch = kEpoch, .sequence = last, .events = {}});
  }
  absl::Status Batch(uint64_t sequence, const std::string& events, IndexedWorker worker = kA) {
    return index_.Take(worker, {.epoch = kEpoch, .sequence = sequence, .events = events});
  }
  absl::Status Part(uint64_t sequence, const std::string& events, uint32_t part, uint32_t parts) {
    return index_.Take(
        kA,
        {.epoch = kEpoch, .sequence = sequence, .events = events, .part = part, .parts = parts});
  }
  FollowedWorker Shown(size_t i = 0) { return index_.Status().workers.at(i); }

  FleetIndex index_;
};

TEST_F(FleetIndexTest, AWorkerIsFollowedOnceItsLastBatchIsIn) {
  EXPECT_FALSE(index_.IsFollowed(kA));
  ASSERT_TRUE(First(2).ok());
  EXPECT_FALSE(index_.IsFollowed(kA));
  EXPECT_EQ(Shown().trouble, "at batch 0 of 2");
  ASSERT_TRUE(Batch(1, Stored({{kChain[0]}})).ok());
  EXPECT_FALSE(index_.IsFollowed(kA));
  ASSERT_TRUE(Batch(2, Stored(kChain)).ok());
  EXPECT_TRUE(index_.IsFollowed(kA));
  EXPECT_THAT(index_.Match(kChain), ElementsAre(HeldPrefix{kA, CacheTier::kDevice, 3}));
  EXPECT_EQ(Shown().units, 3u);
  EXPECT_EQ(Shown().sequence, 2u);
  EXPECT_EQ(Shown().trouble, "");
  EXPECT_EQ(index_.Status().units, 3u);
  EXPECT_EQ(index_.Status().memberships, 3u);
  EXPECT_EQ(index_.Position(kA)->sequence, 2u);
}

TEST_F(FleetIndexTest, AfterAGapTheWorkersEntriesAreDroppedAndItsNextStreamStartsOver) {
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  EXPECT_EQ(Batch(3, Stored(kChain)).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(index_.IsFollowed(kA));
  EXPECT_THAT(index_.Match(kChain), IsEmpty());
  EXPECT_EQ(index_.Position(kA)->sequence, 0u);
  EXPECT_EQ(Shown().gaps, 1);
  EXPECT_THAT(Shown().trouble, HasSubstr("batch 3"));

  ASSERT_TRUE(First(3).ok());
  ASSERT_TRUE(Part(3, Stored({{kChain[0]}}), 0, 2).ok());
  EXPECT_FALSE(index_.IsFollowed(kA));
  ASSERT_TRUE(Part(3, Stored({{kChain[1]}}), 1, 2).ok());
  EXPECT_TRUE(index_.IsFollowed(kA));
  EXPECT_EQ(Shown().snapshots, 1);
  EXPECT_THAT(index_.Match(kChain), ElementsAre(HeldPrefix{kA, CacheTier::kDevice, 2}));
}

TEST_F(FleetIndexTest, ASnapshotOnAFollowedStreamCountsAsAGap) {
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  ASSERT_TRUE(Part(9, Stored({{kChain[0]}}), 0, 1).ok());
  EXPECT_EQ(Shown().gaps, 1);
  EXPECT_EQ(Shown().snapshots, 1);
  EXPECT_EQ(Shown().sequence, 9u);
  EXPECT_THAT(index_.Match(kChain), ElementsAre(HeldPrefix{kA, CacheTier::kDevice, 1}));
}

TEST_F(FleetIndexTest, InvalidBatchesAreRefusedByName) {
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  const absl::Status status = Batch(2, "rubbish");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(index_.Match(kChain), IsEmpty());
  EXPECT_EQ(Shown().trouble, std::string(status.message()));
}

TEST_F(FleetIndexTest, SequenceNumbersThatGoBackAreAGap) {
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  EXPECT_EQ(First(0).code(), absl::StatusCode::kDataLoss);
}

TEST_F(FleetIndexTest, EventsOfAnotherIncarnationAtTheAddressAreRefused) {
  const absl::Status status =
      index_.Take(kA, {.epoch = Epoch(8), .sequence = 1, .events = Stored(kChain)});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(index_.Match(kChain), IsEmpty());
}

TEST_F(FleetIndexTest, ADepartedWorkersEntriesAreRemoved) {
  index_.Add(kB, kEpoch, 0);
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  ASSERT_TRUE(First(1, kB).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain), kB).ok());
  index_.Remove(kA);
  EXPECT_THAT(index_.Match(kChain), ElementsAre(HeldPrefix{kB, CacheTier::kDevice, 3}));
  EXPECT_EQ(index_.Status().memberships, 3u);
  EXPECT_THAT(index_.Status().workers, SizeIs(1));
  EXPECT_EQ(Batch(2, Stored(kChain)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(index_.Position(kA).status().code(), absl::StatusCode::kNotFound);
  index_.Remove(kA);
  EXPECT_EQ(Shown().units, 3u);
}

TEST_F(FleetIndexTest, GapsOfDepartedWorkersStillCount) {
  index_.Add(kB, kEpoch, 0);
  ASSERT_TRUE(First(3).ok());
  EXPECT_EQ(Batch(2, Stored(kChain)).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Part(1, Stored(kChain), 0, 1).ok());
  ASSERT_TRUE(First(1, kB).ok());
  EXPECT_EQ(Batch(7, Stored(kChain), kB).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(index_.Status().gaps, 2);
  EXPECT_EQ(index_.Status().snapshots, 1);
  index_.Remove(kA);
  EXPECT_EQ(index_.Status().gaps, 2) << "totals never fall";
  EXPECT_EQ(index_.Status().snapshots, 1);
  index_.Remove(kB);
  EXPECT_EQ(index_.Status().gaps, 2);
}

TEST_F(FleetIndexTest, ABrokenStreamKeepsItsEntriesAndResumes) {
  ASSERT_TRUE(First(1).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  index_.Interrupted(kA, absl::UnavailableError("connection lost"));
  EXPECT_FALSE(index_.IsFollowed(kA));
  EXPECT_EQ(Shown().trouble, "connection lost");
  EXPECT_THAT(index_.Match(kChain), SizeIs(1));
  EXPECT_EQ(index_.Position(kA)->sequence, 1u);
  ASSERT_TRUE(First(1).ok());
  EXPECT_TRUE(index_.IsFollowed(kA));
}

TEST_F(FleetIndexTest, AWorkerSettlesWhenFollowedOrSilentTooLongOrWithoutKvEvents) {
  const std::vector<IndexedWorker> both = {kA, kB};
  EXPECT_FALSE(index_.HaveSettled(both, 0)) << "the index does not know the second worker";
  index_.Add(kB, kEpoch, 500);
  EXPECT_FALSE(index_.HaveSettled(both, 500));
  ASSERT_TRUE(First(0).ok());
  EXPECT_TRUE(index_.HaveSettled({{kA}}, 500));
  index_.Interrupted(kA, absl::UnavailableError("connection lost"));
  EXPECT_TRUE(index_.HaveSettled({{kA}}, 500)) << "the index caught up with it once";
  EXPECT_FALSE(index_.HaveSettled(both, 500 + kPatienceUs - 1));
  EXPECT_TRUE(index_.HaveSettled(both, 500 + kPatienceUs));
  index_.CannotTell(kB, absl::UnimplementedError("no such method"));
  EXPECT_TRUE(index_.HaveSettled(both, 500));
  EXPECT_FALSE(index_.IsFollowed(kB));
  EXPECT_EQ(Shown(1).trouble, "no such method");
}

TEST_F(FleetIndexTest, RequestsQueryTheIndexWhileEventsArrive) {
  constexpr uint64_t kRounds = 500;
  const KvEvent removed{
      .kind = KvEvent::Kind::kRemoved, .parent = std::nullopt, .hashes = {kChain[2], kChain[1]}};
  const std::string taken_back = EncodeKvEvents({&removed, 1});
  ASSERT_TRUE(First(0).ok());
  ASSERT_TRUE(Batch(1, Stored(kChain)).ok());
  std::atomic<bool> done = false;
  std::thread teller([&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      EXPECT_TRUE(Batch(2 * i, taken_back).ok());
      EXPECT_TRUE(Batch(2 * i + 1, Stored(kChain)).ok());
    }
    done = true;
  });
  std::thread others([&] {  // incarnations that join and leave
    for (uint32_t number = 100; !done; ++number) {
      const IndexedWorker worker(number);
      index_.Add(worker, kEpoch, 0);
      EXPECT_TRUE(First(1, worker).ok());
      EXPECT_TRUE(Batch(1, Stored(kChain), worker).ok());
      index_.Remove(worker);
    }
  });
  while (!done) {
    int32_t units = 0;
    for (const HeldPrefix& prefix : index_.Match(kChain)) {
      if (prefix.worker == kA) units = prefix.units;
    }
    EXPECT_THAT(units, ::testing::AnyOf(1, 2, 3)) << "the first unit is never removed";
    EXPECT_TRUE(index_.IsFollowed(kA));
    EXPECT_LE(index_.Status().workers.size(), 2u);
  }
  teller.join();
  others.join();
  EXPECT_THAT(index_.Match(kChain), ElementsAre(HeldPrefix{kA, CacheTier::kDevice, 3}));
  EXPECT_EQ(index_.Status().memberships, kChain.size());
}

}  // namespace
}  // namespace baton
