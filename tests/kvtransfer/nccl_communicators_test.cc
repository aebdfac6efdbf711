#include "kvtransfer/nccl/nccl_communicators.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/fake_nccl_script.h"

namespace baton {
namespace {

using Kind = NcclReport::Kind;
using ::testing::HasSubstr;

// Two nodes that this thread polls in turn.
class NcclCommunicatorsTest : public ::testing::Test {
 protected:
  struct Node {
    Node(const NcclApi& nccl, std::shared_ptr<CudaContext> context,
         const NcclCommunicators::Limits& limits)
        : all(nccl, std::move(context), limits) {}
    int64_t Count(NcclCommId id, Kind kind) const {
      int64_t count = 0;
      for (const NcclReport& r : seen) count += r.comm == id && r.kind == kind;
      return count;
    }
    const NcclReport& Find(NcclCommId id, Kind kind) const {
      for (const NcclReport& r : seen) {
        if (r.comm == id && r.kind == kind) return r;
      }
      ADD_FAILURE() << "no report came";
      return seen.front();
    }
    NcclCommunicators all;
    std::vector<NcclReport> seen;
  };

  NcclCommunicatorsTest() { ResetFakeNccl(); }
  ~NcclCommunicatorsTest() override {
    EXPECT_EQ(fake_.calls_from_two_threads, 0);
    ResetFakeNccl();
  }

  void Poll() {
    for (Node* node : {&a_, &b_}) {
      for (NcclReport& report : node->all.Poll()) {
        if (!keep_) report.keep.reset();
        node->seen.push_back(std::move(report));
      }
    }
  }
  bool PollUntil(const std::function<bool()>& what) {
    for (int i = 0; i < 30'000; ++i) {
      Poll();
      if (what()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  void Begin(NcclCommId id) {
    a_.all.Create(id, kNcclSenderRank, "");
    Poll();
    b_.all.Create(id, kNcclReceiverRank, a_.Find(id, Kind::kUniqueId).unique_id);
  }
  void Make(NcclCommId id) {
    Begin(id);
    ASSERT_TRUE(PollUntil(
        [&] { return a_.Count(id, Kind::kReady) == 1 && b_.Count(id, Kind::kReady) == 1; }));
  }
  void Fill(NcclCommId id, int32_t slot, int value, size_t bytes) {
    Copy(a_.Find(id, Kind::kReady).slots[slot], std::vector(bytes, std::byte(value)).data(), bytes);
    Copy(b_.Find(id, Kind::kReady).slots[slot], std::vector(bytes, std::byte{0}).data(), bytes);
  }
  int At(NcclCommId id, int32_t slot, size_t at) {
    std::byte value{};
    Copy(&value, b_.Find(id, Kind::kReady).slots[slot] + at, 1);
    return std::to_integer<int>(value);
  }
  // Slots are device memory, which only the driver accesses.
  void Copy(std::byte* to, const std::byte* from, size_t bytes) {
    const CudaDriver& cuda = context_->Enter();
    CuStream stream = nullptr;
    ASSERT_EQ(cuda.StreamCreate(&stream, kCuStreamNonBlocking), kCuSuccess);
    EXPECT_EQ(cuda.MemcpyAsync(reinterpret_cast<CuDevicePointer>(to),
                               reinterpret_cast<CuDevicePointer>(from), bytes, stream),
              kCuSuccess);
    EXPECT_EQ(cuda.StreamSynchronize(stream), kCuSuccess);
    cuda.StreamDestroy(stream);
  }
  void WaitForTheDevice() {  // as the release of memory does
    const CudaDriver& cuda = context_->Enter();
    CuDevicePointer memory = 0;
    ASSERT_EQ(cuda.MemAlloc(&memory, 1), kCuSuccess);
    ASSERT_EQ(cuda.MemFree(memory), kCuSuccess);
  }
  size_t FreeDeviceMemory() {
    size_t free = 0, total = 0;
    EXPECT_EQ(context_->Enter().MemGetInfo(&free, &total), kCuSuccess);
    return free;
  }

  FakeNccl& fake_ = TheFakeNccl();
  const NcclApi nccl_ = *LoadNccl({FakeNcclPath()});
  const std::shared_ptr<CudaContext> context_ = OpenEmulatedGpu();
  const NcclCommunicators::Limits limits_{.communicators = 3, .slots = 2, .slot_bytes = 4096};
  Node a_{nccl_, context_, limits_}, b_{nccl_, context_, limits_};
  const NcclCommId one_{PeerId(1), 1}, two_{PeerId(2), 1}, three_{PeerId(3), 1};
  bool keep_ = false;  // the memory of slots, as copies do
};

TEST_F(NcclCommunicatorsTest, OperationsEndInOrderWithTheirBytes) {
  fake_.sides[0].issue_polls = fake_.sides[1].issue_polls = 2;
  Make(one_);
  for (int round = 0; round < 3; ++round) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      Fill(one_, slot, 10 * round + slot + 1, 4096);
      const int64_t bytes = slot == 0 ? 4096 : 7;
      a_.all.Post(one_, slot, bytes);
      b_.all.Post(one_, slot, bytes);
    }
    ASSERT_TRUE(PollUntil([&] {
      return b_.Count(one_, Kind::kDone) == 2 * (round + 1) &&
             a_.Count(one_, Kind::kDone) == 2 * (round + 1);
    }));
    EXPECT_EQ(At(one_, 0, 4095), 10 * round + 1);
    EXPECT_EQ(At(one_, 1, 6), 10 * round + 2);
    EXPECT_EQ(At(one_, 1, 7), 0);
  }
  EXPECT_FALSE(a_.all.busy());
}

TEST_F(NcclCommunicatorsTest, ACommunicatorThatHangsDelaysNoOther) {
  Make(one_);
  fake_.sides[0].hangs_at_operation = 0;
  a_.all.Post(one_, 0, 100);
  b_.all.Post(one_, 0, 100);
  ASSERT_TRUE(PollUntil([&] { return fake_.sides[0].operations == 1; }));
  fake_.sides[0].create_hangs = true;
  Begin({PeerId(3), 1});
  fake_.sides[0].create_hangs = false;
  Make(two_);
  EXPECT_TRUE(a_.all.busy());
  EXPECT_EQ(a_.Count(one_, Kind::kDone), 0);
  fake_.sides[0].hangs_at_operation = -1;
  EXPECT_TRUE(PollUntil([&] { return b_.Count(one_, Kind::kDone) == 1; }));
}

TEST_F(NcclCommunicatorsTest, AbortEndsOperationsInFlightAndTheirMemoryIsReused) {
  Make(one_);
  const size_t free = FreeDeviceMemory();
  fake_.sides[0].hangs_at_operation = 0;
  a_.all.Post(one_, 0, 100);
  b_.all.Post(one_, 0, 100);
  ASSERT_TRUE(PollUntil([&] { return fake_.sides[0].operations == 1; }));
  a_.all.Abort(one_);
  b_.all.Abort(one_);
  a_.all.Abort(one_);        // a repeated abort has no effect
  a_.all.Post(one_, 0, 10);  // nor has a late post
  EXPECT_EQ(fake_.sides[0].aborted, 1);
  EXPECT_EQ(a_.all.size(), 0u);
  fake_.sides[0].hangs_at_operation = -1;
  WaitForTheDevice();
  Make(two_);
  EXPECT_EQ(FreeDeviceMemory(), free);
  Fill(two_, 0, 9, 100);
  a_.all.Post(two_, 0, 100);
  b_.all.Post(two_, 0, 100);
  ASSERT_TRUE(PollUntil([&] { return b_.Count(two_, Kind::kDone) == 1; }));
  EXPECT_EQ(At(two_, 0, 99), 9);
}

TEST_F(NcclCommunicatorsTest, MemoryThatACopyUsesIsNotReused) {
  keep_ = true;
  Make(one_);
  const std::vector<std::byte*> kept = a_.Find(one_, Kind::kReady).slots;
  a_.all.Abort(one_);
  b_.all.Abort(one_);
  WaitForTheDevice();
  Make(two_);
  EXPECT_NE(a_.Find(two_, Kind::kReady).slots, kept);
  for (Node* node : {&a_, &b_}) {
    for (NcclReport& report : node->seen) report.keep.reset();
  }
  Make(three_);
  EXPECT_EQ(a_.Find(three_, Kind::kReady).slots, kept);
}

TEST_F(NcclCommunicatorsTest, AFailureIsReportedOnceAndTheCommunicatorWaitsToBeAborted) {
  fake_.sides[0].create_async_result = kNcclSystemError;
  a_.all.Create(one_, kNcclSenderRank, "");
  ASSERT_TRUE(PollUntil([&] { return a_.Count(one_, Kind::kFailed) == 1; }));
  EXPECT_EQ(a_.Find(one_, Kind::kFailed).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(a_.Find(one_, Kind::kFailed).status.message()),
              HasSubstr("communicator creation: fake error (2)"));
  for (int i = 0; i < 10; ++i) Poll();
  EXPECT_EQ(a_.Count(one_, Kind::kFailed), 1);
  EXPECT_EQ(fake_.sides[0].aborted, 0);
  EXPECT_FALSE(a_.all.busy());
  a_.all.Abort(one_);
  EXPECT_EQ(fake_.sides[0].aborted, 1);
}

TEST_F(NcclCommunicatorsTest, AnAsynchronousErrorIsReported) {
  Make(one_);
  fake_.sides[1].async_error = kNcclRemoteError;
  ASSERT_TRUE(PollUntil([&] { return b_.Count(one_, Kind::kFailed) == 1; }));
  EXPECT_EQ(a_.Count(one_, Kind::kFailed), 0);
}

TEST_F(NcclCommunicatorsTest, MoreThanTheLimitAreRefused) {
  for (uint64_t i = 1; i <= 4; ++i) a_.all.Create({PeerId(i), 1}, kNcclSenderRank, "");
  Poll();
  EXPECT_EQ(a_.Count({PeerId(3), 1}, Kind::kFailed), 0);
  EXPECT_EQ(a_.Find({PeerId(4), 1}, Kind::kFailed).status,
            absl::ResourceExhaustedError("3 communicators exist, which is the limit"));
}

TEST_F(NcclCommunicatorsTest, DestructionAbortsAllCommunicators) {
  {
    NcclCommunicators all(nccl_, context_, limits_);
    all.Create(one_, kNcclSenderRank, "");
    all.Create(two_, kNcclSenderRank, "");
  }
  EXPECT_EQ(fake_.sides[0].created, 2);
  EXPECT_EQ(fake_.sides[0].aborted, 2);
}

}  // namespace
}  // namespace baton
