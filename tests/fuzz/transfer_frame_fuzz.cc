// libFuzzer target for transfer frames. For any bytes, FrameReader must return frames or an error,
// in bounded memory. Accepted frames must stay the same when they are encoded and decoded again.
//
// The seeds contain a stream of each type of frame. The input's first byte determines how the rest
// is divided into reads. The second determines whether CRCs are repaired, so that the fuzzer
// reaches the fields behind the checks.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "kvtransfer/sockets/frame_stream.h"
#include "tests/fuzz/seed_corpus.h"

namespace baton {
namespace {

void Put(std::string& bytes, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

// Makes a frame of `body` with a valid header, except that `type` may be wrong.
std::string Repaired(uint8_t type, const std::string& body) {
  std::string frame = EncodeFrame(PingFrame{});
  frame[5] = static_cast<char>(type);
  Put(frame, 8, static_cast<uint32_t>(body.size()));
  Put(frame, 12, Crc32c(body));
  Put(frame, 16, Crc32c(std::string_view(frame).substr(0, 16)));
  return frame + body;
}

Frame Decoded(const std::string& encoded) {
  const auto bytes = std::as_bytes(std::span(encoded.data(), encoded.size()));
  const auto header = DecodeFrameHeader(bytes.first(kFrameHeaderBytes));
  CHECK(header.ok()) << header.status();
  auto frame = DecodeFrameBody(*header, bytes.subspan(kFrameHeaderBytes));
  CHECK(frame.ok()) << frame.status();
  return *std::move(frame);
}

void Run(const std::string& stream, size_t step) {
  FrameReader reader;
  for (size_t at = 0; at < stream.size();) {
    iovec buffers[kMaxIovecs];
    reader.Fill(buffers);
    const size_t count = std::min({buffers[0].iov_len, step, stream.size() - at});
    std::memcpy(buffers[0].iov_base, stream.data() + at, count);
    at += count;
    const auto frame = reader.Advance(static_cast<int64_t>(count));
    if (!frame.ok()) return;
    if (!frame->has_value()) {
      reader.TakeLanded();
      continue;
    }
    CHECK(Decoded(EncodeFrame(**frame)) == **frame) << FrameName(**frame);
    if (const auto* block = std::get_if<BlockFrame>(&**frame)) {
      if (block->payload_bytes > 0) reader.StartPayload(BlockLanding(block->payload_bytes));
    }
  }
}

// One frame of each type.
std::vector<Frame> Examples() {
  const BlockFrame block{.transfer_id = 1,
                         .receiver_epoch = Epoch(2),
                         .sender_transfer = 3,
                         .block = 0,
                         .valid_tokens = 4,
                         .payload_bytes = 8,
                         .piece_crcs = {5, 6}};
  const std::vector<Frame> examples = {
      HelloFrame{.fingerprint = {}, .epoch = Epoch(1), .node = "sender"},
      HelloReplyFrame{.accepted = true, .epoch = Epoch(2), .reason = ""},
      AnnounceFrame{.transfer_id = 1,
                    .receiver_epoch = Epoch(2),
                    .sender_transfer = 3,
                    .block_count = 2,
                    .tokens = 8,
                    .available = 2,
                    .final = true,
                    .manifest = "m"},
      PullFrame{.transfer_id = 1,
                .sender_transfer = 3,
                .first = 0,
                .count = 2,
                .layers = {.first = 1, .count = 2}},
      block,
      DoneFrame{.transfer_id = 1, .sender_transfer = 3},
      AbortFrame{.transfer_id = 1, .sender_transfer = 3, .reason = "gone"},
      PingFrame{},
      PongFrame{},
      SharedPoolFrame{.num_blocks = 9},
      SharedBlockFrame{.block = block, .place = {.pool_block = 3, .generation = 4}},
      NcclOfferFrame{.nccl_version = 22809, .window = 2, .batch_bytes = 1 << 20},
      NcclJoinFrame{.unique_id = std::string(kNcclUniqueIdBytes, 'u')},
      NcclReadyFrame{},
      NcclBatchFrame{.sequence = 0, .blocks = {block, block}},
      NcclLandedFrame{.batches = 1},
      NcclStopFrame{.closed = true, .landed = 1, .reason = "late"},
      TakesLayersFrame{},
      SharedSlotsFrame{.slots = 9},
      SharedTakenFrame{.blocks = 9}};
  for (size_t i = 0; i < examples.size(); ++i) CHECK_EQ(examples[i].index(), i);
  CHECK_EQ(examples.size(), std::variant_size_v<Frame>);
  return examples;
}

// Frames of a model with sliding windows.
std::vector<Frame> ExamplesOfGroups() {
  HelloFrame hello{.fingerprint = {}, .epoch = Epoch(1), .node = "sender"};
  hello.fingerprint.protocol = kGroupsTransferProtocol;
  hello.fingerprint.groups = "full layers 2; window 24 layers 0-1";
  return {hello,
          AnnounceFrame{.transfer_id = 1,
                        .receiver_epoch = Epoch(2),
                        .sender_transfer = 3,
                        .block_count = 2,
                        .tokens = 8,
                        .available = 1,
                        .manifest = {},
                        .layers = 1,
                        .window_first_blocks = {1, 0, 2}},
          SharedPoolFrame{.num_blocks = 9, .window_num_blocks = {5}},
          SharedBlockFrame{.block = {.transfer_id = 1, .piece_crcs = {5, 6}},
                           .place = {.pool_block = 3, .generation = 4},
                           .windows = {{.pool_block = 2, .generation = 6}}}};
}

void AddSeeds(const std::vector<Frame>& frames, const std::string& suffix,
              std::vector<FuzzSeed>& seeds) {
  for (const Frame& frame : frames) {
    const auto* block = std::get_if<BlockFrame>(&frame);
    const std::string payload(block == nullptr ? 0 : static_cast<size_t>(block->payload_bytes),
                              'p');
    const std::string stream = EncodeFrame(frame) + payload;
    const std::string name = FrameName(frame) + suffix;
    seeds.push_back({name, std::string("\xff\0\0", 3) + stream + stream});
    // Only the body, so that the fuzzer can change it and get valid CRCs.
    std::string repaired = {'\xff', '\1', static_cast<char>(frame.index() + 1)};
    seeds.push_back({name + "-body", repaired + EncodeFrame(frame).substr(kFrameHeaderBytes)});
  }
}

std::vector<FuzzSeed> Seeds() {
  std::vector<FuzzSeed> seeds;
  AddSeeds(Examples(), "", seeds);
  AddSeeds(ExamplesOfGroups(), "-groups", seeds);
  return seeds;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  baton::WriteSeeds(*argc, *argv, baton::Seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t step = 1 + data[0];
  baton::Run(data[1] % 2 == 0 ? bytes : baton::Repaired(data[2], bytes), step);
  return 0;
}
