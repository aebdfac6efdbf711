// Worker for transfer benchmarks: a pool in shared memory and a transport. The caller acts as the
// engine thread. Also runs iperf3 for comparison.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/shared_page_buffer.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"
#include "nlohmann/json.hpp"

namespace baton {

using Instant = std::chrono::steady_clock::time_point;
inline Instant Now() { return std::chrono::steady_clock::now(); }
inline double Seconds(Instant since) {
  return std::chrono::duration<double>(Now() - since).count();
}

using MakeTransport =
    std::function<absl::StatusOr<std::unique_ptr<KvTransport>>(TransportOptions options)>;

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Evicts everything from the CPU caches by writing a buffer larger than any of them.
class CacheFlush {
 public:
  void operator()() { std::memset(scrap_.data(), ++value_, scrap_.size()); }

 private:
  int value_ = 0;
  std::vector<char> scrap_ = std::vector<char>(256 << 20);
};

class TransferWorker {
 public:
  TransferWorker(const MakeTransport& make, const KvLayout& layout, uint64_t epoch)
      : layout_(layout) {
    auto pool = SharedPageBuffer::Allocate(layout.pool_bytes(), "benchmark pool");
    CHECK(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    for (size_t i = 0; i < pool_.size(); i += 8) {  // all pieces differ
      const uint64_t value = (i + epoch) * 0x9E3779B97F4A7C15;
      std::memcpy(pool_.data() + i, &value, std::min<size_t>(8, pool_.size() - i));
    }
    lender_ = std::make_unique<HostPool>(pool_.data(), layout, pool_.fd());
    KvFingerprint fingerprint;
    fingerprint.layout = std::string(KvLayoutKindName(layout.kind()));
    fingerprint.block_size = layout.block_size();
    auto transport = make({.fingerprint = std::move(fingerprint),
                           .epoch = Epoch(epoch),
                           .pool = lender_.get(),
                           .waker = [this] {
                             {
                               const std::lock_guard lock(mutex_);
                               woken_ = true;
                             }
                             wake_.notify_one();  // unlocked: the woken thread takes the lock
                           }});
    CHECK(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }

  // Reports all blocks as full, as an engine does. The transport then needs new checksums once.
  void ReportFull() {
    transport_->Written(FirstBlocks(static_cast<int32_t>(layout_.num_blocks())), {}, 0);
  }

  KvTransport& transport() { return *transport_; }
  const KvLayout& layout() const { return layout_; }
  std::byte* pool() { return pool_.data(); }
  // Returns the blocks for `tokens` tokens, from the pool's start. Wraps around at its end.
  std::vector<BlockId> BlocksOf(int32_t tokens) const {
    return FirstBlocks(BlocksForTokens(layout_.block_size(), tokens));
  }

  // Waits for `count` terminal events. CHECKs that the transfers succeeded. kSleeping sleeps
  // between polls, as an idle engine does; kLooking polls all the time, as a busy engine may
  // between steps.
  enum class Wait { kSleeping, kLooking };
  void WaitForEnds(int64_t count, Wait wait) {
    while (true) {
      for (const TransferEvent& event : transport_->Poll()) {
        CHECK(event.status.ok()) << event.status;
        count -= event.kind != TransferEvent::Kind::kReceiving;
      }
      if (count == 0) return;
      if (wait == Wait::kLooking) {
        sched_yield();
        continue;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return woken_; });
      woken_ = false;
    }
  }

 private:
  std::vector<BlockId> FirstBlocks(int32_t count) const {
    const auto in_pool = static_cast<int32_t>(layout_.num_blocks());
    std::vector<BlockId> blocks;
    for (int32_t i = 0; i < count; ++i) blocks.push_back(BlockId(i % in_pool));
    return blocks;
  }

  const KvLayout layout_;
  SharedPageBuffer pool_;
  std::unique_ptr<HostPool> lender_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  std::unique_ptr<KvTransport> transport_;
};

// Post one transfer of `tokens` tokens from the start of one pool to the start of the other, at the
// receiver and at the sender. REQUIRES: `id` was not used before.
inline void PostReceive(TransferWorker& to, uint64_t id, int32_t tokens) {
  CHECK(to.transport()
            .Expect({.transfer_id = id, .blocks = to.BlocksOf(tokens), .tokens = tokens})
            .ok());
}
inline void StartSend(TransferWorker& from, TransferWorker& to, uint64_t id, int32_t tokens) {
  const TransferTicket ticket{.transfer_id = id,
                              .receiver_epoch = to.transport().epoch(),
                              .address = to.transport().address(),
                              .block_count = static_cast<int32_t>(to.BlocksOf(tokens).size()),
                              .block_size = to.layout().block_size()};
  CHECK(
      from.transport().StartSend({.sender_transfer = id, .ticket = ticket, .tokens = tokens}).ok());
}
inline void PostSend(TransferWorker& from, TransferWorker& to, uint64_t id, int32_t tokens) {
  StartSend(from, to, id, tokens);
  from.transport().Announce(id, from.BlocksOf(tokens), /*final=*/true, "");
}

// Seconds from the sender's post to the receiver's terminal event.
inline double MoveOnce(TransferWorker& from, TransferWorker& to, uint64_t id, int64_t tokens,
                       TransferWorker::Wait wait = TransferWorker::Wait::kSleeping) {
  PostReceive(to, id, static_cast<int32_t>(tokens));
  const Instant start = Now();
  PostSend(from, to, id, static_cast<int32_t>(tokens));
  to.WaitForEnds(1, wait);
  const double seconds = Seconds(start);
  from.WaitForEnds(1, wait);
  return seconds;
}

// Bytes per second that iperf3 (one stream, defaults) moves over loopback. NotFound: it is not
// installed. Internal: it failed.
inline absl::StatusOr<double> Iperf3BytesPerSecond(int seconds) {
  if (std::system("command -v iperf3 >/dev/null 2>&1") != 0) {
    return absl::NotFoundError("iperf3 is not installed (apt-get install iperf3)");
  }
  const int port = 20'000 + getpid() % 20'000;
  const std::string command = "iperf3 -s -1 -p " + std::to_string(port) +
                              " >/dev/null 2>&1 & sleep 0.3; iperf3 -c 127.0.0.1 -p " +
                              std::to_string(port) + " -J -t " + std::to_string(seconds) + "; wait";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("iperf3 cannot be started");
  std::string text;
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    text.append(buffer, got);
  pclose(pipe);
  const auto report = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto rate = nlohmann::json::json_pointer("/end/sum_received/bits_per_second");
  if (report.is_discarded() || !report.contains(rate)) {
    return absl::InternalError("iperf3 failed to run");
  }
  return report[rate].get<double>() / 8;
}

}  // namespace baton
