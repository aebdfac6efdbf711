#include "kvtransfer/sockets/frame_stream.h"

#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

// Two pools of one layout, and a byte pipe from a writer to a reader that moves any number of bytes
// at a time.
class FrameStreamTest : public ::testing::TestWithParam<KvLayoutKind> {
 protected:
  FrameStreamTest()
      : layout_(MakeLayout({.layout = GetParam(), .num_blocks = 4})),
        from_(layout_.pool_bytes()),
        to_(layout_.pool_bytes(), std::byte{0xEE}) {
    for (size_t i = 0; i < from_.size(); ++i) from_[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  }

  BlockDeparture Departure(int32_t valid) {
    PoolLease lease =
        *source_.Acquire(PoolAccess::kRead, LeadingTokens(BlockId(1), valid), LayerRange{});
    std::vector<uint32_t> crcs = lease.bytes().Checksums();
    return BlockDeparture(std::move(lease), Dispatch(valid), std::move(crcs));
  }
  std::vector<uint32_t> Checksums(std::vector<std::byte>& pool, BlockId block, int32_t valid) {
    return PieceBytes(pool.data(), layout_, LeadingTokens(block, valid), {}).Checksums();
  }
  BlockDispatch Dispatch(int32_t valid) const {
    return {.serial = 1,
            .blocks = BlockId(1),
            .frame = {.transfer_id = 8,
                      .receiver_epoch = Epoch(2),
                      .sender_transfer = 9,
                      .block = 6,
                      .valid_tokens = valid,
                      .payload_bytes = BlockValidBytes(layout_, valid),
                      .piece_crcs = {}}};
  }
  // Takes at most `limit` bytes from the writer. Empty if it has none.
  static std::string Take(FrameWriter& writer, size_t limit, int* blocks_out) {
    iovec runs[5];
    const int count = writer.Fill(runs);
    std::string bytes;
    for (int i = 0; i < count && bytes.size() < limit; ++i) {
      bytes.append(static_cast<const char*>(runs[i].iov_base),
                   std::min(runs[i].iov_len, limit - bytes.size()));
    }
    if (writer.Advance(static_cast<int64_t>(bytes.size()))) ++*blocks_out;
    return bytes;
  }
  // Feeds bytes to the reader. Placements land in block 2 of the target pool.
  void Give(FrameReader& reader, std::string_view bytes) {
    while (!bytes.empty()) {
      iovec runs[kMaxIovecs];
      reader.Fill(runs);
      const size_t n = std::min(runs[0].iov_len, bytes.size());
      std::memcpy(runs[0].iov_base, bytes.data(), n);
      bytes.remove_prefix(n);
      auto frame = reader.Advance(static_cast<int64_t>(n));
      ASSERT_TRUE(frame.ok()) << frame.status();
      if (frame->has_value()) {
        frames_.push_back(**frame);
        if (auto* block = std::get_if<BlockFrame>(&**frame)) {
          const LandingPart whole{.blocks = BlockId(2), .tokens = block->valid_tokens};
          reader.StartPayload(
              BlockLanding(*target_.Acquire(PoolAccess::kLand, {whole}, block->layers),
                           {1, 8, {whole}}, std::move(*block)));
        }
      }
      if (auto landed = reader.TakeLanded()) landed_.push_back(landed->verified());
    }
  }

  const KvPoolLayout layout_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  HostPool source_{from_.data(), layout_};
  HostPool target_{to_.data(), layout_};
  std::vector<Frame> frames_;
  std::vector<absl::Status> landed_;
};

INSTANTIATE_TEST_SUITE_P(Layouts, FrameStreamTest,
                         ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor));

TEST_P(FrameStreamTest, FramesAndBlocksArriveWholeForAnySplitOfTheBytes) {
  constexpr uint32_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (const int32_t valid : {1, 5, 16}) {
    frames_.clear();
    landed_.clear();
    FrameWriter writer;
    FrameReader reader;
    const DoneFrame done{.transfer_id = 3, .sender_transfer = 4};
    ASSERT_TRUE(writer.Send(PingFrame{}).ok());
    writer.StartBlock(Departure(valid));
    ASSERT_TRUE(writer.Send(done).ok());  // waits until the block is sent
    int blocks_out = 0;
    while (!writer.empty()) Give(reader, Take(writer, 1 + random() % 200, &blocks_out));
    EXPECT_EQ(blocks_out, 1);
    ASSERT_EQ(frames_.size(), 3u);
    EXPECT_TRUE(frames_[2] == Frame(done));
    ASSERT_EQ(landed_.size(), 1u);
    EXPECT_TRUE(landed_[0].ok()) << landed_[0];
    EXPECT_FALSE(reader.mid_frame());
    EXPECT_EQ(Checksums(to_, BlockId(2), valid), Checksums(from_, BlockId(1), valid));
  }
}

TEST_P(FrameStreamTest, ADetachedDepartureSendsTheBytesOfTheMomentItWasDetached) {
  FrameWriter writer;
  FrameReader reader;
  writer.StartBlock(Departure(16));
  int blocks_out = 0;
  Give(reader, Take(writer, 700, &blocks_out));
  writer.departure()->Detach();
  std::fill(from_.begin(), from_.end(), std::byte{0});
  while (!writer.empty()) Give(reader, Take(writer, 900, &blocks_out));
  ASSERT_EQ(landed_.size(), 1u);
  EXPECT_TRUE(landed_[0].ok()) << landed_[0];
}

TEST_P(FrameStreamTest, ADivertedLandingWritesNoMoreAndKeepsTheStreamInStep) {
  FrameWriter writer;
  FrameReader reader;
  writer.StartBlock(Departure(16));
  ASSERT_TRUE(writer.Send(PongFrame{}).ok());
  int blocks_out = 0;
  Give(reader, Take(writer, 700, &blocks_out));
  ASSERT_NE(reader.landing(), nullptr);
  reader.landing()->Divert();
  const std::vector<std::byte> before = to_;
  while (!writer.empty()) Give(reader, Take(writer, 900, &blocks_out));
  EXPECT_EQ(to_, before);
  ASSERT_EQ(frames_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PongFrame>(frames_[1]));
}

// The announced body size alone must not allocate memory; memory grows as bytes arrive.
TEST(FrameReader, HoldsNoMoreThanTwiceWhatHasArrived) {
  const std::string bytes = EncodeFrame(AnnounceFrame{.manifest = std::string(1 << 20, 'm')});
  FrameReader reader;
  std::optional<Frame> frame;
  for (size_t at = 0; at < bytes.size();) {
    iovec run;
    reader.Fill({&run, 1});
    ASSERT_LE(run.iov_len, std::max<size_t>(16 << 10, at)) << at;
    const size_t n = std::min<size_t>(run.iov_len, 5000);
    std::memcpy(run.iov_base, bytes.data() + at, n);
    at += n;
    auto got = reader.Advance(static_cast<int64_t>(n));
    ASSERT_TRUE(got.ok()) << got.status();
    if (got->has_value()) frame = **got;
  }
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(std::get<AnnounceFrame>(*frame).manifest.size(), size_t{1} << 20);
}

TEST(FrameReader, DuringAGreetingAllOtherFramesAreRefused) {
  const auto read_header = [](FrameReader& reader, const Frame& frame) {
    const std::string bytes = EncodeFrame(frame);
    iovec run;
    reader.Fill({&run, 1});
    std::memcpy(run.iov_base, bytes.data(), kFrameHeaderBytes);
    return reader.Advance(kFrameHeaderBytes).status();
  };
  const Frame others[] = {AnnounceFrame{}, PullFrame{}, BlockFrame{}, DoneFrame{},
                          AbortFrame{},    PingFrame{}, PongFrame{}};
  for (const Frame& frame : others) {
    FrameReader reader;
    reader.BeginGreeting();
    EXPECT_EQ(read_header(reader, frame).code(), absl::StatusCode::kInvalidArgument)
        << FrameName(frame);
    FrameReader greeted;
    greeted.BeginGreeting();
    greeted.EndGreeting();
    EXPECT_TRUE(read_header(greeted, frame).ok()) << FrameName(frame);
  }
  for (const Frame& frame : {Frame(HelloFrame{}), Frame(HelloReplyFrame{})}) {
    FrameReader reader;
    reader.BeginGreeting();
    EXPECT_TRUE(read_header(reader, frame).ok()) << FrameName(frame);
  }
}

TEST(FrameWriter, RefusesFramesBeyondItsLimit) {
  FrameWriter writer;
  const std::string manifest(kMaxManifestBytes, 'm');
  absl::Status status;
  int sent = 0;
  for (; status.ok() && sent < 1000; ++sent) {
    status = writer.Send(AnnounceFrame{.final = true, .manifest = manifest});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sent, 4) << "the fourth MiB and its header do not fit";
}

}  // namespace
}  // namespace baton
