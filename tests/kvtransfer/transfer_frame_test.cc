#include "kvtransfer/protocol/transfer_frame.h"

#include <random>

#include "common/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

absl::StatusOr<Frame> Decode(const std::string& bytes) {
  const auto header = DecodeFrameHeader(Bytes(bytes).first(kFrameHeaderBytes));
  if (!header.ok()) return header.status();
  if (bytes.size() != kFrameHeaderBytes + header->body_bytes) {
    return absl::OutOfRangeError("body of another length");
  }
  return DecodeFrameBody(*header, Bytes(bytes).subspan(kFrameHeaderBytes));
}

// Replaces the body and corrects both CRCs, so that only the decoder's own checks remain.
std::string WithBody(const std::string& frame, const std::string& body) {
  std::string out = frame.substr(0, 8);
  const auto number = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  };
  number(static_cast<uint32_t>(body.size()));
  number(Crc32c(body));
  number(Crc32c(out));
  return out + body;
}

std::vector<Frame> Samples() {
  return {
      HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(7), .node = "tcp:1.2.3.4:5"},
      HelloReplyFrame{.accepted = false, .epoch = Epoch(8), .reason = "layers: ours 1, theirs 2"},
      AnnounceFrame{.transfer_id = 1,
                    .receiver_epoch = Epoch(2),
                    .sender_transfer = ~uint64_t{0},
                    .first_block = 4,
                    .block_count = 5,
                    .tokens = 600,
                    .available = 5,
                    .final = true,
                    .manifest = std::string("\0manifest", 9)},
      PullFrame{.transfer_id = 1, .sender_transfer = 2, .first = 3, .count = 4},
      BlockFrame{.transfer_id = 1,
                 .receiver_epoch = Epoch(2),
                 .sender_transfer = 3,
                 .block = 4,
                 .valid_tokens = 128,
                 .payload_bytes = int64_t{1} << 40,
                 .piece_crcs = {1, 0xFFFFFFFF, 3}},
      DoneFrame{.transfer_id = 1, .sender_transfer = 2},
      AbortFrame{.transfer_id = 1,
                 .sender_transfer = 2,
                 .code = absl::StatusCode::kNotFound,
                 .reason = "gone"},
      PingFrame{},
      PongFrame{},
      SharedPoolFrame{.num_blocks = INT32_MAX},
      SharedBlockFrame{.block = {.transfer_id = 1,
                                 .receiver_epoch = Epoch(2),
                                 .sender_transfer = 3,
                                 .block = 4,
                                 .valid_tokens = 16,
                                 .payload_bytes = 5,
                                 .piece_crcs = {6, 7}},
                       .place = {.pool_block = 8, .generation = ~uint64_t{9}}},
      NcclOfferFrame{.nccl_version = 22809, .window = 2, .batch_bytes = 4 << 20},
      NcclJoinFrame{.unique_id = std::string(kNcclUniqueIdBytes, '\x7f')},
      NcclReadyFrame{},
      NcclBatchFrame{
          .sequence = 7,
          .blocks = {BlockFrame{.transfer_id = 1, .payload_bytes = 5, .piece_crcs = {6, 7}},
                     BlockFrame{.transfer_id = 2, .payload_bytes = 9, .piece_crcs = {8}}}},
      NcclLandedFrame{.batches = 8},
      NcclStopFrame{
          .closed = true, .landed = 3, .code = absl::StatusCode::kUnavailable, .reason = "no GPU"},
      TakesLayersFrame{},
      SharedSlotsFrame{.slots = INT32_MAX},
      SharedTakenFrame{.blocks = UINT64_MAX}};
}

// Frames with the fields that version 5 added at their end.
std::vector<Frame> SamplesWithLayers() {
  const LayerRange layers{.first = 3, .count = 4};
  AnnounceFrame announce{.transfer_id = 1, .block_count = 5, .available = 4, .manifest = ""};
  announce.layers = 7;
  return {announce, PullFrame{.transfer_id = 1, .first = 3, .count = 4, .layers = layers},
          BlockFrame{.transfer_id = 1, .piece_crcs = {6, 7}, .layers = layers},
          SharedBlockFrame{.block = {.transfer_id = 1, .piece_crcs = {6, 7}, .layers = layers},
                           .place = {.pool_block = 8, .generation = 9}},
          NcclBatchFrame{
              .sequence = 7,
              .blocks = {BlockFrame{.transfer_id = 1, .piece_crcs = {6}, .layers = layers}}}};
}

TEST(TransferFrame, AnAnnouncementTellsOfWindowsBehindTheLayers) {
  AnnounceFrame announce{.transfer_id = 1, .block_count = 5, .available = 4, .manifest = ""};
  const std::string plain = EncodeFrame(announce);
  for (const int32_t layers : {0, 7}) {
    announce.layers = layers;
    announce.window_first_blocks = {3, 0, 2};
    const std::string bytes = EncodeFrame(announce);
    EXPECT_EQ(bytes.size(), plain.size() + 4 + 3 * 4);
    const absl::StatusOr<Frame> back = Decode(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == Frame(announce));
    const std::string body = bytes.substr(kFrameHeaderBytes);
    EXPECT_FALSE(Decode(WithBody(bytes, body.substr(0, body.size() - 1))).ok());
    EXPECT_THAT(
        std::string(Decode(WithBody(bytes, body + std::string(4, '\0'))).status().message()),
        HasSubstr("window_first_blocks has more than 3 entries"));
    std::string negative = body;
    negative.back() = '\x80';
    EXPECT_THAT(std::string(Decode(WithBody(bytes, negative)).status().message()),
                HasSubstr("window_first_blocks -2147483646 is outside"));
  }
}

TEST(TransferFrame, LayersStandAtTheEndAndOnlyWhereThereAreSome) {
  for (const Frame& frame : SamplesWithLayers()) {
    const std::string bytes = EncodeFrame(frame);
    const absl::StatusOr<Frame> back = Decode(bytes);
    ASSERT_TRUE(back.ok()) << FrameName(frame) << back.status();
    EXPECT_TRUE(*back == frame) << FrameName(frame);
    // As if no layers were announced, and cut inside the layer fields.
    const std::string body = bytes.substr(kFrameHeaderBytes);
    const size_t added = std::holds_alternative<AnnounceFrame>(frame) ? 4 : 8;
    const auto without = Decode(WithBody(bytes, body.substr(0, body.size() - added)));
    ASSERT_TRUE(without.ok()) << FrameName(frame) << without.status();
    EXPECT_FALSE(*without == frame);
    EXPECT_FALSE(Decode(WithBody(bytes, body.substr(0, body.size() - 1))).ok());
    // A layer count of 0 is never written.
    std::string none = body;
    std::fill(none.end() - 4, none.end(), '\0');
    EXPECT_THAT(std::string(Decode(WithBody(bytes, none)).status().message()),
                HasSubstr("layers is 0"));
    if (std::holds_alternative<NcclBatchFrame>(frame)) {  // [0, +0) for all of its blocks
      std::fill(none.end() - 8, none.end(), '\0');
      EXPECT_THAT(std::string(Decode(WithBody(bytes, none)).status().message()),
                  HasSubstr("no block has layers"));
    }
    std::string many = body;
    std::fill(many.end() - 4, many.end(), '\x7f');
    EXPECT_EQ(Decode(WithBody(bytes, many)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TransferFrame, ABatchHasWholeBlocksAndLayersOfOthers) {
  NcclBatchFrame batch{.sequence = 7, .blocks = {}};
  batch.blocks.resize(2);
  batch.blocks[0].block = 1;
  const size_t plain = EncodeFrame(batch).size();
  batch.blocks[1].layers = {.first = 3, .count = 4};
  const std::string bytes = EncodeFrame(batch);
  EXPECT_EQ(bytes.size(), plain + 2 * 8);
  const absl::StatusOr<Frame> back = Decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == Frame(batch));
}

TEST(TransferFrame, TheLandedTimeIsAtTheEndAndOnlyIfItIsSent) {
  const Frame told = DoneFrame{.transfer_id = 1, .sender_transfer = 2, .landed_us = 3};
  const std::string bytes = EncodeFrame(told);
  EXPECT_TRUE(*Decode(bytes) == told);
  const std::string body = bytes.substr(kFrameHeaderBytes);
  EXPECT_TRUE(*Decode(WithBody(bytes, body.substr(0, body.size() - 8))) ==
              Frame(DoneFrame{.transfer_id = 1, .sender_transfer = 2}));
  EXPECT_FALSE(Decode(WithBody(bytes, body.substr(0, body.size() - 1))).ok());
  for (const char filler : {'\0', '\xFF'}) {
    const std::string wrong = body.substr(0, body.size() - 8) + std::string(8, filler);
    EXPECT_THAT(std::string(Decode(WithBody(bytes, wrong)).status().message()),
                HasSubstr("landed_us is"));
  }
}

TEST(TransferFrame, EveryTypeRoundTrips) {
  const std::vector<Frame> samples = Samples();
  ASSERT_EQ(samples.size(), std::variant_size_v<Frame>);
  for (const Frame& frame : samples) {
    const absl::StatusOr<Frame> back = Decode(EncodeFrame(frame));
    ASSERT_TRUE(back.ok()) << FrameName(frame) << back.status();
    EXPECT_TRUE(*back == frame) << FrameName(frame);
  }
}

TEST(TransferFrame, EverySingleBitFlipIsNoticed) {
  for (const Frame& frame : Samples()) {
    const std::string bytes = EncodeFrame(frame);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
      EXPECT_FALSE(Decode(flipped).ok()) << FrameName(frame) << " bit " << bit;
    }
  }
}

TEST(TransferFrame, ABodyCutAnywhereOrWithMoreBehindItIsRefused) {
  for (const Frame& frame : Samples()) {
    const std::string bytes = EncodeFrame(frame);
    const std::string body = bytes.substr(kFrameHeaderBytes);
    for (size_t length = 0; length < body.size(); ++length) {
      const auto cut = Decode(WithBody(bytes, body.substr(0, length)));
      EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument)
          << FrameName(frame) << " " << length;
    }
    EXPECT_FALSE(Decode(WithBody(bytes, body + '\0')).ok()) << FrameName(frame);
  }
}

TEST(TransferFrame, RandomBodiesWithRightChecksumsNeverDoMoreThanFail) {
  constexpr uint32_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int decoded = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::vector<Frame> samples = Samples();
    const std::string bytes = EncodeFrame(samples[random() % samples.size()]);
    std::string body = bytes.substr(kFrameHeaderBytes);
    if (body.empty()) continue;
    for (int i = 0; i < 3; ++i) body[random() % body.size()] = static_cast<char>(random());
    const auto frame = Decode(WithBody(bytes, body));
    if (!frame.ok()) continue;
    ++decoded;
    EXPECT_TRUE(EncodeFrame(*frame).size() > 0);
  }
  EXPECT_GT(decoded, 0);
}

TEST(TransferFrame, LengthsPastALimitAreNamed) {
  std::string bytes = EncodeFrame(PullFrame{});
  const std::string huge = WithBody(bytes, std::string(100, 'x'));
  EXPECT_THAT(std::string(Decode(huge).status().message()),
              HasSubstr("Pull: body_bytes 100, the limit is 32"));
  const std::string abort = EncodeFrame(AbortFrame{.reason = ""});
  std::string body = abort.substr(kFrameHeaderBytes);
  body[body.size() - 4] = 1;
  body[body.size() - 3] = 4;  // reason length 1025
  EXPECT_THAT(std::string(Decode(WithBody(abort, body + std::string(40, 'r'))).status().message()),
              HasSubstr("Abort: reason has 1025 bytes, the limit is 1024"));
}

TEST(TransferFrame, NcclCountsAndSizesPastTheirLimitsAreNamed) {
  const auto refusal = [](const Frame& frame, size_t at, uint8_t value) {
    const std::string bytes = EncodeFrame(frame);
    std::string body = bytes.substr(kFrameHeaderBytes);
    body[at] = static_cast<char>(value);
    return std::string(Decode(WithBody(bytes, body)).status().message());
  };
  const NcclOfferFrame offer{.nccl_version = 22809, .window = 2, .batch_bytes = 4};
  EXPECT_THAT(refusal(offer, 4, 17), HasSubstr("window 17 is outside [0, 16]"));
  EXPECT_THAT(refusal(offer, 4, 0), HasSubstr("window 0 or batch_bytes 4 is outside"));
  EXPECT_THAT(refusal(offer, 8, 0), HasSubstr("batch_bytes 0 is outside"));
  EXPECT_THAT(refusal(offer, 15, 0xFF), HasSubstr("is outside"));  // negative
  EXPECT_THAT(refusal(NcclBatchFrame{}, 8, 65), HasSubstr("block count 65 is outside [0, 64]"));
  const std::string join = EncodeFrame(NcclJoinFrame{.unique_id = std::string(128, 'u')});
  const std::string short_id = std::string("\x7f\0\0\0", 4) + std::string(127, 'u');
  EXPECT_THAT(std::string(Decode(WithBody(join, short_id)).status().message()),
              HasSubstr("unique_id has 127 bytes, not 128"));
}

// The bytes of builds before KV groups, field by field.
TEST(TransferFrame, FramesOfOneGroupHaveTheBytesOfBuildsBeforeGroups) {
  std::string body;
  const auto number = [&](auto value) {
    for (size_t i = 0; i < sizeof(value); ++i) {
      body.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  };
  const auto is_body_of = [&](const Frame& frame) {
    const std::string bytes = EncodeFrame(frame);
    EXPECT_EQ(bytes.substr(kFrameHeaderBytes), body) << FrameName(frame);
    EXPECT_TRUE(*Decode(WithBody(bytes, body)) == frame) << FrameName(frame);
    body.clear();
  };
  number(int64_t{77});
  is_body_of(SharedPoolFrame{.num_blocks = 77});
  for (const LayerRange layers : {LayerRange{}, LayerRange{.first = 2, .count = 3}}) {
    number(int32_t{8});   // pool_block
    number(uint64_t{9});  // generation
    number(uint64_t{1});  // transfer_id
    number(uint64_t{2});  // receiver_epoch
    number(uint64_t{3});  // sender_transfer
    number(int32_t{4});   // block
    number(int32_t{16});  // valid_tokens
    number(int64_t{5});   // payload_bytes
    number(int32_t{2});   // pieces
    number(uint32_t{6});
    number(uint32_t{7});
    if (!layers.all()) {
      number(layers.first);
      number(layers.count);
    }
    is_body_of(SharedBlockFrame{.block = {.transfer_id = 1,
                                          .receiver_epoch = Epoch(2),
                                          .sender_transfer = 3,
                                          .block = 4,
                                          .valid_tokens = 16,
                                          .payload_bytes = 5,
                                          .piece_crcs = {6, 7},
                                          .layers = layers},
                                .place = {.pool_block = 8, .generation = 9}});
  }
}

TEST(TransferFrame, WindowsStandAtTheEndOfWhatIsSharedAndOnlyWhereThereAreSome) {
  const LayerRange some{.first = 3, .count = 4};
  for (const Frame& frame :
       {Frame(SharedPoolFrame{.num_blocks = 5, .window_num_blocks = {6, INT32_MAX}}),
        Frame(SharedBlockFrame{.block = {.transfer_id = 1, .piece_crcs = {6, 7}},
        .place = {.pool_block = 8, .generation = 9},
        .windows = {{.pool_block = 3, .generation = ~uint64_t{0}}}}),
        Frame(SharedBlockFrame{.block = {.transfer_id = 1, .piece_crcs = {6, 7}, .layers = some},
        .place = {.pool_block = 8, .generation = 9},
        .windows = {{.pool_block = 3, .generation = 1}, {.pool_block = 0, .generation = 2}}})}) {
    const std::string bytes = EncodeFrame(frame);
    const absl::StatusOr<Frame> back = Decode(bytes);
    ASSERT_TRUE(back.ok()) << FrameName(frame) << back.status();
    EXPECT_TRUE(*back == frame) << FrameName(frame);
    const std::string body = bytes.substr(kFrameHeaderBytes);
    for (size_t cut = 1; cut < 8; ++cut) {
      EXPECT_FALSE(Decode(WithBody(bytes, body.substr(0, body.size() - cut))).ok()) << cut;
    }
    std::string negative = body;
    const size_t number = std::holds_alternative<SharedPoolFrame>(frame) ? 8 : 12;
    std::fill(negative.end() - static_cast<ptrdiff_t>(number), negative.end(), '\xFF');
    EXPECT_THAT(std::string(Decode(WithBody(bytes, negative)).status().message()),
                HasSubstr("is outside [0, "));
  }
  // More groups than any pool has, and a layer count of 0 with a first layer above 0.
  SharedPoolFrame pools{.num_blocks = 1, .window_num_blocks = {1, 1, 1}};
  const std::string most = EncodeFrame(pools);
  EXPECT_FALSE(Decode(WithBody(most, most.substr(kFrameHeaderBytes) + std::string(8, 1))).ok());
  SharedBlockFrame block{.block = {.transfer_id = 1, .piece_crcs = {}, .layers = some},
                         .place = {},
                         .windows = {{.pool_block = 3, .generation = 1}}};
  const std::string bytes = EncodeFrame(block);
  std::string body = bytes.substr(kFrameHeaderBytes);
  body[body.size() - 16] = 0;  // the layer count
  EXPECT_THAT(std::string(Decode(WithBody(bytes, body)).status().message()),
              HasSubstr("layers is 0"));
}

}  // namespace
}  // namespace baton
