// Random test of both NCCL channels against each other. The simulated NCCL is slow, hangs and fails
// in an order that a seed determines. Checks:
//  - Every block arrives once and in order, over NCCL or within the stream.
//  - Both sides post the same operations.
//  - Once the faults are over, everything arrives.

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_receive_channel.h"
#include "kvtransfer/nccl/nccl_send_channel.h"
#include "tests/kvtransfer/nccl_channel_script.h"

namespace baton {
namespace {

using Kind = NcclReport::Kind;
using Way = NcclSendChannel::Way;

constexpr int32_t kBlocks = 60;

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    receiver_.Offer();
    TakeReceiversFrames();
  }

  void Run() {
    for (int i = 0; i < 600 && !Failed(); ++i) Step(/*faults=*/true);
    hanging_ = false;
    for (int i = 0; i < 20'000 && arrived_ < kBlocks && !Failed(); ++i) Step(/*faults=*/false);
    EXPECT_EQ(arrived_, kBlocks);
    EXPECT_FALSE(Failed());
  }
  int64_t by_batch() const { return by_batch_; }
  int64_t by_stream() const { return arrived_ - by_batch_; }

 private:
  // The operations that both ranks of one communicator posted and saw end.
  struct Pair {
    struct Rank {
      bool created = false;
      bool ready = false;
      bool aborted = false;
      std::vector<int64_t> posted;
      size_t ended = 0;
    };
    Rank ranks[2];
  };
  // NcclDriver of one side.
  struct Side final : NcclDriver {
    Side(World& world, int rank) : world(world), rank(rank) {}
    void Create(NcclCommId comm, int, std::string unique_id) override {
      if (rank == kNcclSenderRank) unique_id = std::to_string(comm.attempt);
      names[comm] = unique_id.substr(0, unique_id.find('.'));
      Mine(comm).created = true;
      if (rank != kNcclSenderRank) return;
      unique_id.resize(kNcclUniqueIdBytes, '.');
      reports.push_back(Report(comm, Kind::kUniqueId, unique_id));
    }
    void Post(NcclCommId comm, int32_t, int64_t bytes) override {
      EXPECT_TRUE(Mine(comm).ready);
      Mine(comm).posted.push_back(bytes);
    }
    void Abort(NcclCommId comm) override { Mine(comm).aborted = true; }

    Pair::Rank& Mine(NcclCommId comm) { return world.pairs_[names.at(comm)].ranks[rank]; }
    NcclReport Report(NcclCommId comm, Kind kind, std::string unique_id = "") {
      NcclReport report;
      report.kind = kind;
      report.comm = comm;
      report.unique_id = std::move(unique_id);
      if (kind == Kind::kReady) report.slots = {&memory[0], &memory[1]};
      if (kind == Kind::kFailed) report.status = absl::UnavailableError("broken");
      return report;
    }

    World& world;
    const int rank;
    std::map<NcclCommId, std::string> names;  // names of the pairs
    std::deque<NcclReport> reports;
    std::byte memory[2];
  };
  using Message = std::variant<Frame, int32_t>;  // a number is a block within the stream

  bool Failed() const { return ::testing::Test::HasFailure(); }
  uint32_t Pick(uint32_t count) { return random_() % count; }

  void Step(bool faults) {
    switch (Pick(9)) {
      case 0:
        return SendBlocks();
      case 1:
        return DeliverToReceiver();
      case 2:
        return DeliverToSender();
      case 3:
        return ReportTo(sends_);
      case 4:
        return ReportTo(receives_);
      case 5:
      case 6:
        return Progress();
      case 7:
        if (faults && Pick(40) == 0) return Break();
        if (faults && Pick(10) == 0) hanging_ = !hanging_;
        return;
      default:
        now_us_ += Pick(10) == 0 ? Pick(3'000'000) : Pick(1000);
        if (!faults && Pick(50) == 0) now_us_ += 40'000'000;
        sender_.OnTimer(now_us_);
        receiver_.OnTimer(now_us_);
        TakeSendersFrames();
        TakeReceiversFrames();
    }
  }

  void SendBlocks() {
    if (sender_.way() == Way::kWait) return;
    if (sender_.way() == Way::kStream) {
      if (const auto block = sender_.TakeUnlanded()) {
        to_receiver_.push_back(block->blocks[0].value());
      } else if (next_ < kBlocks) {
        to_receiver_.push_back(next_++);
      }
      return;
    }
    if (sender_.FreeSlot() == nullptr || next_ == kBlocks) return;
    std::vector<BlockDispatch> blocks;
    int64_t bytes = 0;
    for (uint32_t i = 1 + Pick(2); i > 0 && next_ < kBlocks; --i) {
      BlockDispatch dispatch{.serial = 1, .blocks = BlockId(next_), .frame = {}};
      dispatch.frame.block = next_;
      dispatch.frame.payload_bytes = 1 + next_;
      bytes += dispatch.frame.payload_bytes;
      blocks.push_back(dispatch);
      ++next_;
    }
    if (Pick(100) == 0) {
      sender_.OnGatherFailed(std::move(blocks), absl::UnavailableError("copy"));
    } else {
      sender_.StartBatch(std::move(blocks), bytes, now_us_);
    }
    TakeSendersFrames();
  }

  void DeliverToReceiver() {
    if (to_receiver_.empty()) return;
    Message message = std::move(to_receiver_.front());
    to_receiver_.pop_front();
    if (const auto* block = std::get_if<int32_t>(&message)) return Arrive(*block);
    const absl::Status status = receiver_.OnFrame(std::get<Frame>(std::move(message)), now_us_);
    EXPECT_TRUE(status.ok()) << status;
    TakeReceiversFrames();
  }

  void DeliverToSender() {
    if (to_sender_.empty()) return;
    const Frame frame = std::move(to_sender_.front());
    to_sender_.pop_front();
    const absl::Status status = sender_.OnFrame(frame, now_us_);
    EXPECT_TRUE(status.ok()) << status;
    TakeSendersFrames();
  }

  void ReportTo(Side& side) {
    if (side.reports.empty()) return;
    const NcclReport report = std::move(side.reports.front());
    side.reports.pop_front();
    if (side.rank == kNcclSenderRank) {
      sender_.OnReport(report, now_us_);
    } else if (const auto arrival = receiver_.OnReport(report, now_us_)) {
      for (const BlockFrame& block : arrival->blocks) {
        Arrive(block.block);
        ++by_batch_;
      }
    }
    TakeSendersFrames();
    TakeReceiversFrames();
  }

  // Makes one step of progress in one communicator.
  void Progress() {
    Side& side = Pick(2) == 0 ? sends_ : receives_;
    if (side.names.empty() || hanging_) return;
    const auto it = std::next(side.names.begin(), Pick(static_cast<uint32_t>(side.names.size())));
    Pair::Rank& mine = side.Mine(it->first);
    const Pair::Rank& other = pairs_[it->second].ranks[1 - side.rank];
    if (mine.aborted || !other.created) return;
    if (!mine.ready) {
      mine.ready = true;
      side.reports.push_back(side.Report(it->first, Kind::kReady));
    } else if (mine.ended < std::min(mine.posted.size(), other.posted.size())) {
      EXPECT_EQ(mine.posted[mine.ended], other.posted[mine.ended]);
      ++mine.ended;
      side.reports.push_back(side.Report(it->first, Kind::kDone));
    }
  }

  void Break() {
    Side& side = Pick(2) == 0 ? sends_ : receives_;
    if (side.names.empty()) return;
    const NcclCommId last = side.names.rbegin()->first;
    if (side.Mine(last).aborted) return;
    side.reports.push_back(side.Report(last, Kind::kFailed));
  }

  void Arrive(int32_t block) { EXPECT_EQ(block, arrived_++); }
  void TakeSendersFrames() {
    for (Frame& frame : sender_.TakeFrames()) to_receiver_.emplace_back(std::move(frame));
  }
  void TakeReceiversFrames() {
    for (Frame& frame : receiver_.TakeFrames()) to_sender_.push_back(std::move(frame));
  }

  std::mt19937 random_;
  const NcclOptions options_ = ScriptedNccl();
  std::map<std::string, Pair> pairs_;
  Side sends_{*this, kNcclSenderRank}, receives_{*this, kNcclReceiverRank};
  NcclSendChannel sender_{PeerId(1), options_, kScriptedVersion, kScriptedBlockBytes, sends_};
  NcclReceiveChannel receiver_{PeerId(2),           options_, kScriptedVersion, /*least_bytes=*/1,
                               kScriptedBlockBytes, receives_};
  std::deque<Message> to_receiver_;
  std::deque<Frame> to_sender_;
  bool hanging_ = false;
  int64_t now_us_ = 1'000'000;
  int32_t next_ = 0;
  int32_t arrived_ = 0;
  int64_t by_batch_ = 0;
};

TEST(NcclChannelPair, EveryBlockArrivesOnceAndInOrderUnderAnyNcclFaults) {
  int64_t by_batch = 0, by_stream = 0;
  for (uint32_t seed = 1; seed <= 2000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.Run();
    by_batch += world.by_batch();
    by_stream += world.by_stream();
  }
  EXPECT_GT(by_batch, 10'000);
  EXPECT_GT(by_stream, 10'000);
}

}  // namespace
}  // namespace baton
