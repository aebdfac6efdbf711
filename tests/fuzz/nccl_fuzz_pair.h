// Harness of nccl_connection_fuzz.cc: a sender and a receiver that transfer payload over NCCL, with
// a man in the middle of their stream.
//
// An input is a script of operations (Script). For every script:
//   1. Neither side crashes.
//   2. A transfer ends at most once.
//   3. A block is written only while a transfer expects it.
//   4. If all frames passed unchanged, the received bytes equal the sent bytes.
//
// A separate thread makes NCCL's calls, so the same script may run differently each time.
//
// Thread safety: belongs to the fuzzer's thread.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "tests/fuzz/nccl_fuzz_side.h"
#include "tests/kvtransfer/fake_nccl.h"

namespace baton::nccl_fuzz {

inline constexpr int32_t kTransferBlocks = 3;
inline constexpr size_t kMostTransfers = 4;
inline constexpr size_t kMostOperations = 60;
inline constexpr int kMostLinks = 3;
inline constexpr std::byte kUntouched{0xEE};
inline constexpr std::byte kOurs{0x5A};  // marks blocks that are back with the engine
inline constexpr char kAddress[] = "tcp:127.0.0.1:9";

enum Operation : uint8_t {
  kSettle,   // all frames pass until nothing moves
  kForward,  // one frame passes
  kPart,     // some bytes of a frame pass
  kDrop,
  kDouble,
  kSwap,         // swaps a frame with the one behind it
  kChange,       // changes a byte of a frame's body
  kInsert,       // inserts a frame of the man in the middle
  kInsertBytes,  // inserts bytes that are not a frame
  kTransfer,
  kCancelReceive,
  kCancelSend,
  kTime,
  kFault,
  kWait,  // gives NCCL's thread time
  kOperations,
};

// Reads the input's bytes from the front. Returns zeros behind the end.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint8_t Byte() { return empty() ? 0 : data_[at_++]; }
  uint32_t Below(uint32_t limit) { return Byte() % limit; }
  std::string Bytes() {
    std::string bytes;
    for (size_t count = Byte(); count > 0 && !empty(); --count) {
      bytes.push_back(static_cast<char>(Byte()));
    }
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

inline FakeNccl& Fake() {
  static FakeNccl* const fake = [] {
    void* const library = dlopen(BATON_FAKE_NCCL_DIR "/libfake_nccl.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr) << dlerror();
    return reinterpret_cast<FakeNcclFunction>(dlsym(library, kFakeNcclSymbol))();
  }();
  return *fake;
}

inline void Put(std::string& bytes, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

// Makes the header fit the body again. The bytes behind the body are a payload.
inline void Repair(std::string& frame, size_t body_bytes) {
  const std::string_view bytes(frame);
  Put(frame, 8, static_cast<uint32_t>(body_bytes));
  Put(frame, 12, Crc32c(bytes.substr(kFrameHeaderBytes, body_bytes)));
  Put(frame, 16, Crc32c(bytes.substr(0, 16)));
}

inline size_t BodyBytes(std::string_view frame) {
  uint32_t body_bytes;
  std::memcpy(&body_bytes, frame.data() + 8, sizeof(body_bytes));
  return body_bytes;
}

// Size of the first frame in `bytes`; 0 if it is incomplete. The bytes come from an honest side.
inline size_t FrameBytes(const std::string& bytes) {
  if (bytes.size() < kFrameHeaderBytes) return 0;
  const auto all = std::as_bytes(std::span(bytes.data(), bytes.size()));
  const auto header = DecodeFrameHeader(all.first(kFrameHeaderBytes));
  CHECK(header.ok()) << header.status();
  const size_t end = kFrameHeaderBytes + header->body_bytes;
  if (bytes.size() < end) return 0;
  const auto frame = DecodeFrameBody(*header, all.subspan(kFrameHeaderBytes, header->body_bytes));
  CHECK(frame.ok()) << frame.status();
  const auto* block = std::get_if<BlockFrame>(&*frame);
  const size_t payload = block == nullptr ? 0 : static_cast<size_t>(block->payload_bytes);
  return bytes.size() < end + payload ? 0 : end + payload;
}

class Pair {
 public:
  Pair() : sides_{Side(0), Side(1)} {
    std::fill(receiver().machine().pool.begin(), receiver().machine().pool.end(), kUntouched);
    for (int32_t block = 0; block < kBlocks; ++block) {
      std::ranges::fill(sender().machine().Block(block), static_cast<std::byte>(block + 1));
    }
    for (FakeNcclSide& side : Fake().sides) {
      side.hangs_at_operation = side.fails_at_operation = -1;
      side.dies_at_operation = side.spoils_at_operation = -1;
    }
  }
  ~Pair() {
    for (FakeNcclSide& side : Fake().sides) side.hangs_at_operation = -1;
    for (Side& side : sides_) side.Lose(absl::CancelledError("the input has ended"));
    Cut();
    CHECK_EQ(Fake().calls_from_two_threads, 0);
  }

  void Play(Script script) {
    for (size_t i = 0; i < kMostOperations && !script.empty(); ++i) {
      Do(static_cast<Operation>(script.Below(kOperations)), script);
      Turn();
    }
    CheckPool();
  }

 private:
  Side& sender() { return sides_[0]; }
  Side& receiver() { return sides_[1]; }

  void Do(Operation operation, Script& script);
  void DoToFrame(Operation operation, std::deque<std::string>& way, Script& script);
  void InsertFrame(std::deque<std::string>& way, Script& script);
  void StartTransfer();
  void Cancel(bool at_receiver, uint64_t id);
  void SetFault(Script& script);
  void Turn();
  void Settle();
  bool Relay(int from);
  void Forward(int from, size_t bytes);
  void OpenLink();
  void Cut();
  void OnEvent(const TransferEvent& event);
  void CheckPool();

  std::array<Side, 2> sides_;
  std::array<int, 2> ends_ = {-1, -1};             // the man's end of each side's stream
  std::array<std::string, 2> read_;                // bytes from that side, less than a frame
  std::array<std::deque<std::string>, 2> frames_;  // frames from that side, not forwarded yet
  int links_ = 0;
  int64_t now_us_ = 1'000'000;
  bool meddled_ = false;
  std::map<uint64_t, std::vector<BlockId>> expected_;  // blocks by transfer, until it ends
  std::set<uint64_t> sending_;
  uint64_t next_transfer_ = 1;
};

inline void Pair::StartTransfer() {
  if (next_transfer_ > kMostTransfers) return;
  const uint64_t id = next_transfer_++;
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < kTransferBlocks; ++i) {
    blocks.emplace_back(static_cast<int32_t>(id) * kTransferBlocks + i);
  }
  const int32_t tokens = kTransferBlocks * kBlockSize - 1;
  receiver().node().Apply(ReceiveSpec{.transfer_id = id, .blocks = blocks, .tokens = tokens},
                          now_us_);
  sender().node().Apply(SendSpec{.sender_transfer = id,
                                 .ticket = {.transfer_id = id,
                                            .receiver_epoch = Epoch(2),
                                            .address = kAddress,
                                            .block_count = kTransferBlocks},
                                 .tokens = tokens},
                        now_us_);
  sender().node().Apply(
      AnnounceCommand{.sender_transfer = id, .blocks = blocks, .final = true, .manifest = "m"},
      now_us_);
  expected_[id] = blocks;
  sending_.insert(id);
}

inline void Pair::Cancel(bool at_receiver, uint64_t id) {
  if (at_receiver) receiver().node().Apply(CancelReceiveCommand{id}, now_us_);
  if (!at_receiver) sender().node().Apply(CancelSendCommand{id}, now_us_);
}

inline void Pair::SetFault(Script& script) {
  FakeNcclSide& side = Fake().sides[script.Below(2)];
  std::atomic<int64_t>* const kinds[] = {&side.hangs_at_operation, &side.fails_at_operation,
                                         &side.dies_at_operation, &side.spoils_at_operation};
  std::atomic<int64_t>& kind = *kinds[script.Below(4)];
  const uint32_t after = script.Below(5);
  kind = after == 4 ? -1 : side.operations + after;
}

inline void Pair::InsertFrame(std::deque<std::string>& way, Script& script) {
  std::string frame = EncodeFrame(PingFrame{});
  frame[5] = static_cast<char>(1 + script.Below(std::variant_size_v<Frame>));
  const std::string body = script.Bytes();
  frame += body;
  Repair(frame, body.size());
  way.push_front(std::move(frame));
}

inline void Pair::DoToFrame(Operation operation, std::deque<std::string>& way, Script& script) {
  if (way.empty()) return;
  switch (operation) {
    case kDrop:
      way.pop_front();
      break;
    case kDouble:
      way.insert(way.begin() + 1, way.front());
      break;
    case kSwap:
      if (way.size() > 1) std::swap(way[0], way[1]);
      break;
    default: {
      std::string& frame = way.front();
      if (frame.size() <= kFrameHeaderBytes) return;
      const size_t body_bytes = std::min(BodyBytes(frame), frame.size() - kFrameHeaderBytes);
      if (body_bytes == 0) return;
      frame[kFrameHeaderBytes + script.Byte() % body_bytes] ^= static_cast<char>(script.Byte());
      Repair(frame, body_bytes);
    }
  }
}

inline void Pair::Do(Operation operation, Script& script) {
  const int from = static_cast<int>(script.Below(2));
  std::deque<std::string>& way = frames_[static_cast<size_t>(from)];
  meddled_ = meddled_ || (operation >= kDrop && operation <= kInsertBytes);
  switch (operation) {
    case kSettle:
      return Settle();
    case kForward:
      return Forward(from, SIZE_MAX);
    case kPart:
      return Forward(from, 1 + script.Byte());
    case kDrop:
    case kDouble:
    case kSwap:
    case kChange:
      return DoToFrame(operation, way, script);
    case kInsert:
      return InsertFrame(way, script);
    case kInsertBytes:
      return way.push_front(script.Bytes());
    case kTransfer:
      return StartTransfer();
    case kCancelReceive:
    case kCancelSend:
      return Cancel(operation == kCancelReceive, 1 + script.Below(kMostTransfers));
    case kTime:
      now_us_ += int64_t{1000} << script.Below(15);
      return;
    case kFault:
      return SetFault(script);
    case kWait:
    case kOperations:
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return;
  }
}

inline void Pair::OpenLink() {
  Cut();
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    ends_[static_cast<size_t>(i)] = ends[0];
    sides_[static_cast<size_t>(i)].Connect(ends[1], i == 0 ? kAddress : "", now_us_);
  }
}

// Closes the stream and drops all bytes in transit.
inline void Pair::Cut() {
  for (size_t i = 0; i < 2; ++i) {
    if (ends_[i] >= 0) close(std::exchange(ends_[i], -1));
    read_[i].clear();
    frames_[i].clear();
  }
}

inline bool Pair::Relay(int from) {
  const auto side = static_cast<size_t>(from);
  bool moved = false;
  char bytes[4096];
  while (ends_[side] >= 0) {
    const ssize_t got = recv(ends_[side], bytes, sizeof(bytes), 0);
    if (got <= 0) break;
    read_[side].append(bytes, static_cast<size_t>(got));
    moved = true;
  }
  while (const size_t size = FrameBytes(read_[side])) {
    frames_[side].push_back(read_[side].substr(0, size));
    read_[side].erase(0, size);
  }
  return moved;
}

inline void Pair::Forward(int from, size_t bytes) {
  std::deque<std::string>& way = frames_[static_cast<size_t>(from)];
  const int to = ends_[static_cast<size_t>(1 - from)];
  if (way.empty() || to < 0) return;
  std::string& frame = way.front();
  const size_t count = std::min(bytes, frame.size());
  const ssize_t sent = send(to, frame.data(), count, MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) return;  // the receiver does not read
  frame.erase(0, count);
  if (frame.empty()) way.pop_front();
}

inline void Pair::Turn() {
  for (Side& side : sides_) {
    for (const TransferEvent& event : side.Turn(now_us_)) OnEvent(event);
  }
  for (const std::string& address : sender().node().sender().TakeConnects()) {
    if (links_++ < kMostLinks) {
      receiver().Lose(absl::UnavailableError("another link"));
      OpenLink();
    } else {
      sender().node().sender().OnLinkDown(address, absl::UnavailableError("enough"));
    }
  }
  for (int side : {0, 1}) Relay(side);
  // Only one end of the stream is left, so the other end sees a closed connection.
  if (sender().connected() != receiver().connected()) {
    for (Side& side : sides_) side.Lose(absl::UnavailableError("connection closed by the peer"));
    Cut();
  }
}

inline void Pair::Settle() {
  constexpr int kQuietTurns = 10;
  int quiet = 0;
  for (int turns = 0; quiet < kQuietTurns && turns < 200; ++turns) {
    Turn();
    const bool moves = !frames_[0].empty() || !frames_[1].empty();
    for (int side : {0, 1}) {
      while (ends_[static_cast<size_t>(1 - side)] >= 0 &&
             !frames_[static_cast<size_t>(side)].empty()) {
        Forward(side, SIZE_MAX);
      }
    }
    quiet = moves ? 0 : quiet + 1;
    if (!moves) std::this_thread::sleep_for(std::chrono::microseconds(60));
  }
}

inline void Pair::OnEvent(const TransferEvent& event) {
  using Kind = TransferEvent::Kind;
  if (event.kind == Kind::kReceiving) return;
  if (event.kind == Kind::kSent || event.kind == Kind::kSendFailed) {
    CHECK_EQ(sending_.erase(event.id), 1u) << "a send ended twice or never started";
    return;
  }
  const auto it = expected_.find(event.id);
  CHECK(it != expected_.end()) << "a receive ended twice or never started";
  for (size_t i = 0; i < it->second.size(); ++i) {
    const int32_t block = it->second[i].value();
    const std::span<std::byte> bytes = receiver().machine().Block(block);
    if (event.kind == Kind::kReceived && !meddled_) {
      // A block may have been sent only in part, but its first byte always was.
      CHECK(bytes.front() == static_cast<std::byte>(block + 1)) << "block " << block;
    }
    std::ranges::fill(bytes, kOurs);
  }
  expected_.erase(it);
}

inline void Pair::CheckPool() {
  std::set<int32_t> under_way;
  for (const auto& [id, blocks] : expected_) {
    for (const BlockId block : blocks) under_way.insert(block.value());
  }
  for (int32_t block = 0; block < kBlocks; ++block) {
    if (under_way.contains(block)) continue;
    const std::span<std::byte> bytes = receiver().machine().Block(block);
    const bool whole = std::ranges::all_of(bytes, [](std::byte b) { return b == kUntouched; }) ||
                       std::ranges::all_of(bytes, [](std::byte b) { return b == kOurs; });
    CHECK(whole) << "block " << block << " was written, but no transfer expects it";
  }
}

}  // namespace baton::nccl_fuzz
