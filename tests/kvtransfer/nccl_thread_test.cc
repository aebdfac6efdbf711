#include "kvtransfer/nccl/nccl_thread.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "tests/kvtransfer/fake_nccl_script.h"

namespace baton {
namespace {

using Kind = NcclReport::Kind;

class NcclThreadTest : public ::testing::Test {
 protected:
  NcclThreadTest() { ResetFakeNccl(); }
  ~NcclThreadTest() override { ResetFakeNccl(); }

  std::unique_ptr<NcclThread> Start() {
    return std::make_unique<NcclThread>(
        *LoadNccl({FakeNcclPath()}), OpenEmulatedGpu(),
        NcclCommunicators::Limits{.communicators = 2, .slots = 1, .slot_bytes = 64},
        [this] { ++wakes_; });
  }
  // Waits for the next report, which also wakes.
  static NcclReport Wait(NcclThread& thread) {
    for (int i = 0; i < 30'000; ++i) {
      std::vector<NcclReport> reports = thread.TakeReports();
      if (!reports.empty()) return reports.front();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no report came";
    return {};
  }

  static bool Becomes(int32_t wanted, const std::atomic<int32_t>& value) {
    for (int i = 0; i < 30'000 && value != wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return value == wanted;
  }

  FakeNccl& fake_ = TheFakeNccl();
  std::atomic<int> wakes_ = 0;
  const NcclCommId id_{PeerId(1), 1};
};

TEST_F(NcclThreadTest, RunsPostedWorkAndWakesForReports) {
  const auto a = Start(), b = Start();
  a->Create(id_, kNcclSenderRank, "");
  b->Create(id_, kNcclReceiverRank, Wait(*a).unique_id);
  EXPECT_EQ(Wait(*a).kind, Kind::kReady);
  EXPECT_EQ(Wait(*b).kind, Kind::kReady);
  a->Post(id_, 0, 64);
  b->Post(id_, 0, 64);
  EXPECT_EQ(Wait(*a).kind, Kind::kDone);
  EXPECT_EQ(Wait(*b).kind, Kind::kDone);
  EXPECT_GE(wakes_, 5);
  a->Abort(id_);
}

TEST_F(NcclThreadTest, DestructionAbortsOpenCommunicators) {
  auto a = Start();
  a->Create(id_, kNcclSenderRank, "");
  Wait(*a);
  a.reset();
  EXPECT_EQ(fake_.sides[0].created, fake_.sides[0].aborted);
}

TEST_F(NcclThreadTest, ACallThatDoesNotReturnKeepsNeitherPostsNorTheEndWaiting) {
  fake_.sides[0].create_call_hangs = true;
  auto a = Start();
  a->Create(id_, kNcclSenderRank, "");
  a->Post(id_, 0, 64);
  a->Abort(id_);
  EXPECT_TRUE(Becomes(1, fake_.sides[0].create_calls));
  EXPECT_TRUE(a->TakeReports().empty());
  a.reset();  // abandons the thread
  const int wakes = wakes_;
  fake_.sides[0].create_call_hangs = false;
  EXPECT_TRUE(Becomes(1, fake_.sides[0].aborted));
  EXPECT_EQ(wakes_, wakes);  // no wake call after the end
}

}  // namespace
}  // namespace baton
