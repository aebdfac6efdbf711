// How fast KV blocks move between two workers' pools, beside the memory bandwidth of the same
// machine in the same run.
//
// For loopback and TCP, for the block shapes of SmolLM2-135M and Llama-3-8B in both layouts, for 1
// to 4,096 blocks (as many as the memory limit allows): time from the sender's announcement to the
// receiver's kReceived, as GB/s of payload. The limit is memcpy of the same amount between two cold
// buffers. Also the time of CRC32C over the same bytes, which each side spends once for each block.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/check.h"
#include "common/crc32c.h"
#include "kvtransfer/transport.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

struct Shape {
  const char* name;
  KvGroupSpec group;
};

const Shape kShapes[] = {
    {"smollm2", {.layers = 30, .kv_heads = 3, .head_dim = 64, .type = KvType::kF16}},
    {"llama8b", {.layers = 32, .kv_heads = 8, .head_dim = 128, .type = KvType::kF16}},
};
constexpr int32_t kBlockSize = 16;
constexpr int64_t kBlockCounts[] = {1, 16, 256, 1024, 4096};

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

class BenchWorker {
 public:
  using Create =
      std::function<absl::StatusOr<std::unique_ptr<KvTransport>>(TransportOptions options)>;

  BenchWorker(const Create& create, const KvLayout& layout, uint64_t epoch)
      : pool_(std::make_unique_for_overwrite<std::byte[]>(layout.pool_bytes())) {
    std::memset(pool_.get(), static_cast<int>(epoch), layout.pool_bytes());
    TransportOptions options{
        .fingerprint = {}, .epoch = Epoch(epoch), .pool = {pool_.get(), layout}, .waker = [this] {
          const std::lock_guard lock(mutex_);
          woken_ = true;
          wake_.notify_one();
        }};
    auto transport = create(std::move(options));
    CHECK(transport.ok()) << transport.status();
    transport_ = std::move(*transport);
  }

  KvTransport& transport() { return *transport_; }
  std::byte* pool() { return pool_.get(); }

  // The transfer's terminal event; CHECKs that it succeeded.
  void WaitForEnd() {
    while (true) {
      for (const TransferEvent& event : transport_->Poll()) {
        CHECK(event.status.ok()) << event.status;
        if (event.kind != TransferEvent::Kind::kReceiving) return;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return woken_; });
      woken_ = false;
    }
  }

 private:
  std::unique_ptr<std::byte[]> pool_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  std::unique_ptr<KvTransport> transport_;
};

// One transfer of `count` blocks; returns seconds from announcement to reception.
double MoveOnce(BenchWorker& from, BenchWorker& to, uint64_t id, int64_t count) {
  std::vector<BlockId> blocks;
  for (int64_t i = 0; i < count; ++i) blocks.push_back(BlockId(static_cast<int32_t>(i)));
  const auto tokens = static_cast<int32_t>(count * kBlockSize);
  CHECK(to.transport().Expect({.transfer_id = id, .blocks = blocks, .tokens = tokens}).ok());
  const TransferTicket ticket{.transfer_id = id,
                              .receiver_epoch = to.transport().epoch(),
                              .address = to.transport().address(),
                              .block_count = static_cast<int32_t>(count)};
  const auto start = std::chrono::steady_clock::now();
  CHECK(
      from.transport().StartSend({.sender_transfer = id, .ticket = ticket, .tokens = tokens}).ok());
  from.transport().Announce(id, blocks, /*final=*/true, "");
  to.WaitForEnd();
  const double seconds = Seconds(start);
  from.WaitForEnd();
  return seconds;
}

template <typename F>
double Best(int repeats, const F& f) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) best = std::min(best, f());
  return best;
}

// Bytes per second of memcpy of `bytes` (64 to 512 MiB, so that memory answers and not a cache).
double MemcpyBandwidth(int64_t bytes) {
  bytes = std::clamp<int64_t>(bytes, 64 << 20, 512 << 20);
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const double seconds = Best(3, [&] {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    return Seconds(start);
  });
  return static_cast<double>(bytes) / seconds;
}

double CrcBandwidth(int64_t bytes) {
  std::vector<std::byte> data(bytes, std::byte{1});
  uint32_t crc = 0;
  const int64_t repeats = std::max<int64_t>(1, (256 << 20) / bytes);
  const double seconds = Best(3, [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) crc = ExtendCrc32c(crc, data);
    return Seconds(start);
  });
  std::fprintf(stderr, "crc32c of %lld bytes: %08x\n", static_cast<long long>(bytes), crc);
  return static_cast<double>(bytes * repeats) / seconds;
}

void Figure(nlohmann::json& figures, const std::string& name, double value, const char* unit,
            double limit) {
  figures.push_back({{"name", name},
                     {"value", value},
                     {"unit", unit},
                     {"limit", limit},
                     {"ratio", value / limit}});
}

void Measure(const std::string& medium, const BenchWorker::Create& create, const Shape& shape,
             KvLayoutKind kind, int64_t count, double crc_rate, nlohmann::json& figures) {
  const absl::StatusOr<KvLayout> layout = KvLayout::Create(shape.group, kind, kBlockSize, count);
  CHECK(layout.ok()) << layout.status();
  BenchWorker from(create, *layout, 1);
  BenchWorker to(create, *layout, 2);
  uint64_t id = 1;
  MoveOnce(from, to, id++, count);  // opens the connection, touches the pages
  const int64_t bytes = layout->pool_bytes();
  const int repeats = static_cast<int>(std::clamp<int64_t>((256 << 20) / bytes, 3, 50));
  const double seconds = Best(repeats, [&] { return MoveOnce(from, to, id++, count); });
  CHECK_EQ(std::memcmp(from.pool(), to.pool(), bytes), 0);
  const double rate = static_cast<double>(bytes) / seconds;
  const double copy_rate =
      MemcpyBandwidth(bytes);  // beside it, so that both see the same neighbours
  const double crc_share = static_cast<double>(bytes) / crc_rate / seconds;
  const std::string layout_name(KvLayoutKindName(kind));
  std::printf("%-9s %-8s %-12s %6lld %10.1f %10.1f %8.2f %8.2f %8.2f %9.3f\n", medium.c_str(),
              shape.name, layout_name.c_str(), static_cast<long long>(count), bytes / 1e6,
              seconds * 1e6, rate / 1e9, copy_rate / 1e9, rate / copy_rate, crc_share);
  std::fflush(stdout);
  const std::string name =
      medium + "." + shape.name + "." + layout_name + "." + std::to_string(count) + "_blocks";
  Figure(figures, name, rate / 1e9, "GB/s", copy_rate / 1e9);
}

int Main(int argc, char** argv) {
  CLI::App app("Speed of KV transfers between two workers in this process");
  int64_t max_mib = 2048;
  app.add_option("--max-mib", max_mib, "skip pools larger than this many MiB (each; two are used)")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  nlohmann::json figures = nlohmann::json::array();
  std::printf("%-9s %-8s %-12s %6s %10s %10s %8s %8s %8s %9s\n", "transport", "shape", "layout",
              "blocks", "MB", "us", "GB/s", "memcpy", "ratio", "crc share");
  std::shared_ptr<LoopbackNetwork> network = CreateLoopbackNetwork();
  int next_name = 0;
  const BenchWorker::Create loopback = [&](TransportOptions options) {
    return CreateLoopbackTransport(network, std::to_string(next_name++), std::move(options));
  };
  const BenchWorker::Create tcp = [](TransportOptions options) {
    return CreateTcpTransport("127.0.0.1:0", "", std::move(options));
  };
  for (const Shape& shape : kShapes) {
    const int64_t piece_bytes =
        int64_t{kBlockSize} * shape.group.kv_heads * shape.group.head_dim * 2;
    const int64_t block_bytes = piece_bytes * 2 * shape.group.layers;
    const double copy_rate = MemcpyBandwidth(256 * block_bytes);
    const double crc_rate = CrcBandwidth(piece_bytes);
    Figure(figures, std::string("crc32c.") + shape.name + "_piece", crc_rate / 1e9, "GB/s",
           copy_rate / 1e9);
    std::printf("memcpy, cold: %.2f GB/s; crc32c of a %s piece, warm: %.2f GB/s\n", copy_rate / 1e9,
                shape.name, crc_rate / 1e9);
    for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
      for (const int64_t count : kBlockCounts) {
        if (count * block_bytes > max_mib << 20) continue;
        Measure("loopback", loopback, shape, kind, count, crc_rate, figures);
        Measure("tcp", tcp, shape, kind, count, crc_rate, figures);
      }
    }
  }
  const nlohmann::json line = {{"bench", "transfer"}, {"seed", 0}, {"figures", figures}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
