// Worker for transport tests: a pool with known bytes, a transport, and all events that the
// transport reported.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/test_pool.h"

namespace baton {

struct TestShape {
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  int32_t block_size = 16;
  int64_t num_blocks = 64;
  int32_t layers = 3;
  int32_t kv_heads = 2;
  int32_t head_dim = 8;
  // KV group of each layer: 'f' is full attention; 'w', 'v' and 'u' are windows. Empty: `layers`
  // layers of one group. Windows have one head of 12, so their blocks differ in size from those of
  // full attention. Blocks of 'v' have one plane. Blocks of 'u' are like those of 'w'.
  std::string groups = "";
  int32_t window = 24;  // tokens, for 'w'; 'u' has 4 fewer, 'v' half as many
  int64_t window_blocks = 40;
};

inline KvCacheSpec MakeSpec(const TestShape& shape) {
  KvCacheSpec spec{
      {{.layers = shape.layers, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim}}};
  if (shape.groups.empty()) return spec;
  spec.groups.clear();
  for (const char kind : {'f', 'w', 'v', 'u'}) {
    KvGroupSpec group{.kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
    if (kind != 'f') {
      group.kind = KvGroupKind::kSlidingWindow;
      group.kv_heads = 1;
      group.head_dim = 12;
      group.window = kind == 'w' ? shape.window : kind == 'u' ? shape.window - 4 : shape.window / 2;
      group.planes = kind == 'v' ? 1 : 2;
    }
    for (size_t layer = 0; layer < shape.groups.size(); ++layer) {
      if (shape.groups[layer] == kind) group.model_layers.push_back(static_cast<int32_t>(layer));
    }
    group.layers = static_cast<int32_t>(group.model_layers.size());
    if (group.layers > 0) spec.groups.push_back(group);
  }
  return spec;
}

inline KvPoolLayout MakeLayout(const TestShape& shape) {
  const KvCacheSpec spec = MakeSpec(shape);
  std::vector<int64_t> blocks(spec.groups.size(), shape.window_blocks);
  blocks[0] = shape.num_blocks;
  if (spec.groups.size() > 1) {
    return *KvPoolLayout::Create(spec, shape.layout, shape.block_size, blocks);
  }
  return *KvLayout::Create(spec.groups[0], shape.layout, shape.block_size, shape.num_blocks);
}

inline KvFingerprint MakeFingerprint(const TestShape& shape) {
  KvFingerprint fingerprint;
  fingerprint.model = "0123abcd";
  fingerprint.backend = "cpu";
  fingerprint.numerics = "r1";
  fingerprint.kv_type = "f16";
  fingerprint.layout = std::string(KvLayoutKindName(shape.layout));
  fingerprint.block_size = shape.block_size;
  fingerprint.layers = MakeLayout(shape).layers();
  fingerprint.kv_heads = shape.kv_heads;
  fingerprint.head_dim = shape.head_dim;
  fingerprint.rope = "neox theta=10000";
  DescribeGroups(MakeSpec(shape), fingerprint);
  return fingerprint;
}

using TransportFactory =
    std::function<absl::StatusOr<std::unique_ptr<KvTransport>>(TransportOptions)>;

// How to create a worker's transport, and the kind of its pool's memory.
struct TransportSource {
  template <typename Make>
  requires std::is_invocable_v<const Make&, TransportOptions> TransportSource(
      Make factory, PoolMemory pool_memory = PoolMemory::kHost)  // NOLINT: converts
      : make(std::move(factory)), memory(pool_memory) {}

  TransportFactory make;
  PoolMemory memory;
  // Announces where the pool's memory is. Destroying the returned object ends that.
  std::function<std::shared_ptr<void>(TestPool&)> introduce = nullptr;
  bool shared = false;  // as TestPool's
  StagedPool::Limits limits = {2, 2};
};

class TestWorker {
 public:
  using Kind = TransferEvent::Kind;

  TestWorker(const TransportSource& source, const TestShape& shape, uint64_t epoch,
             uint8_t fill = 0xEE, KvFingerprint fingerprint = {}, int32_t max_transfers = 1024)
      : layout_(MakeLayout(shape)), pool_(layout_, source.memory, source.limits, source.shared) {
    std::memset(pool_.data(), fill, pool_.size());
    if (source.introduce) introduced_ = source.introduce(pool_);
    TransportOptions options;
    options.fingerprint = fingerprint.model.empty() ? MakeFingerprint(shape) : fingerprint;
    options.epoch = Epoch(epoch);
    options.pool = &pool_.lender();
    options.max_transfers = max_transfers;
    options.waker = [this] {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      wake_.notify_one();
    };
    auto transport = source.make(std::move(options));
    EXPECT_TRUE(transport.ok()) << transport.status();
    if (transport.ok()) transport_ = std::move(*transport);
  }

  KvTransport& transport() { return *transport_; }
  void Destroy() { transport_.reset(); }
  const KvPoolLayout& layout() const { return layout_; }
  TestPool& pool() { return pool_; }

  // Fills a block with bytes that only (key, piece, byte) determine.
  void FillBlock(const GroupBlocks& block, uint64_t key) {
    ForEachByte(block, layout_.block_size(),
                [&](int32_t piece, int64_t i, std::byte& b) { b = Pattern(key, piece, i); });
  }
  void FillRaw(const GroupBlocks& block, std::byte value) {
    ForEachByte(block, layout_.block_size(), [&](int32_t, int64_t, std::byte& b) { b = value; });
  }
  // Returns how many bytes in the first `tokens` tokens of the block differ from FillBlock(key).
  int64_t Differences(const GroupBlocks& block, uint64_t key, int32_t tokens) {
    int64_t count = 0;
    ForEachByte(block, tokens, [&](int32_t piece, int64_t i, std::byte& b) {
      count += b != Pattern(key, piece, i);
    });
    return count;
  }
  bool IsRaw(const GroupBlocks& block, std::byte value) {
    bool same = true;
    ForEachByte(block, layout_.block_size(),
                [&](int32_t, int64_t, std::byte& b) { same &= b == value; });
    return same;
  }

  // Polls the transport once.
  void Poll() {
    for (TransferEvent& event : transport_->Poll()) events_.push_back(std::move(event));
  }
  // Waits for the terminal event of a transfer in that direction. Fails the test after 30 s.
  TransferEvent WaitReceived(uint64_t id) {
    return Wait(id, Kind::kReceived, Kind::kReceiveFailed);
  }
  TransferEvent WaitSent(uint64_t id) { return Wait(id, Kind::kSent, Kind::kSendFailed); }
  // Waits for an event of this kind for the transfer.
  TransferEvent WaitFor(uint64_t id, Kind kind) { return Wait(id, kind, kind); }

  int64_t TerminalEvents(uint64_t id, bool receive) const {
    return std::count_if(events_.begin(), events_.end(), [&](const TransferEvent& event) {
      return event.id == id &&
             (receive ? event.kind == Kind::kReceived || event.kind == Kind::kReceiveFailed
                      : event.kind == Kind::kSent || event.kind == Kind::kSendFailed);
    });
  }
  const std::vector<TransferEvent>& events() const { return events_; }

  TransferTicket Ticket(const ReceiveSpec& spec) const {
    return {.transfer_id = spec.transfer_id,
            .receiver_epoch = transport_->epoch(),
            .address = transport_->address(),
            .first_block = spec.first_block,
            .block_count = static_cast<int32_t>(spec.blocks.size()) / layout_.groups(),
            .block_size = layout_.block_size(),
            .window_first_blocks = spec.window_first_blocks,
            .timeout_ms = spec.timeout_ms};
  }

 private:
  static std::byte Pattern(uint64_t key, int32_t piece, int64_t i) {
    return static_cast<std::byte>((key * 131 + piece * 17 + i * 7 + (i >> 8)) % 239);
  }

  template <typename F>
  void ForEachByte(const GroupBlocks& blocks, int32_t tokens, const F& f) {
    for (const Piece piece : Pieces(layout_, blocks.groups(), {})) {
      const BlockId block = blocks[layout_.place(piece.layer).group];
      std::byte* at = pool_.data() + layout_.PieceOffset(piece.layer, piece.plane, block.value());
      const int32_t number = 2 * piece.layer + piece.plane;
      for (int64_t i = 0; i < PieceValidBytes(layout_, piece, tokens); ++i) f(number, i, at[i]);
    }
  }

  TransferEvent Wait(uint64_t id, Kind good, Kind bad) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (true) {
      Poll();
      for (const TransferEvent& event : events_) {
        if (event.id == id && (event.kind == good || event.kind == bad)) return event;
      }
      std::unique_lock lock(mutex_);
      if (!wake_.wait_until(lock, until, [this] { return woken_; })) break;
      woken_ = false;
    }
    ADD_FAILURE() << "no event for transfer " << id;
    TransferEvent none;
    none.kind = bad;
    none.status = absl::InternalError("test gave up waiting");
    return none;
  }

  KvPoolLayout layout_;
  TestPool pool_;
  std::shared_ptr<void> introduced_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  std::vector<TransferEvent> events_;
  std::unique_ptr<KvTransport> transport_;
};

// Returns a transport name that is unique on this host, across processes.
inline std::string UniqueShmName() {
  static std::atomic<int> next = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

// Returns blocks first, first + step, … of a pool.
inline std::vector<BlockId> MakeBlocks(int32_t first, int32_t count, int32_t step = 1) {
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < count; ++i) blocks.push_back(BlockId(first + i * step));
  return blocks;
}

}  // namespace baton
