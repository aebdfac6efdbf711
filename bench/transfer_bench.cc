// Benchmark of KV transfers between two workers' pools. The same run measures what the machine can
// do: memcpy of cold memory, and iperf3 over loopback.
//
// The table has a row for each transport (loopback, TCP, shared memory), block shape (SmolLM2-135M,
// Llama-3-8B), layout, and number of blocks (1 to 4,096, within the memory limit). The time runs
// from the sender's post to the receiver's kReceived, including checksums. The limit is the fastest
// plain copy of as many bytes by one thread, repeated as the transfers are: small ones stay in the
// caches.
//
// Figures with a target are medians. The compared measurements alternate, so both see the same load
// of the machine:
//   shm_to_memcpy   64 MiB of cold SmolLM2 blocks over shared memory, relative to memcpy of as many
//                   bytes. The sender computed the checksums earlier, when the blocks filled.
//   shm_to_copy     the same, relative to the fastest plain copy, which memcpy often is not
//   shm_first       as shm_to_memcpy, but the sender computes the checksums during the transfer
//   shm_fixed_us    a request of minimal size, one at a time: the cost beyond its bytes
//   shm_stream_us   the same with 64 in flight: the cost that one request adds
//   shm_rested_us   the same after a pause of 2 ms, so that threads must be woken
//   socket_us       one byte and back through a Unix socket between two polling threads. A single
//                   request is signalled once through a socket and once in memory.
//   wake_us         waking a sleeping thread. A rested request needs at least three wakes.
//   tcp_to_iperf3   64 MiB of cold SmolLM2 blocks over TCP, checked by the receiver, relative to
//                   iperf3 (whose own buffer stays in the cache)
//   kv_tls_to_plain 64 MiB of cold SmolLM2 blocks over TCP with TLS, relative to TCP without it
//   kv_tls_to_openssl  the same, relative to `openssl speed`, where one thread only encrypts
//   reshape.*       64 MiB of cold SmolLM2 tokens between pools of different geometry, relative to
//                   equal pools (block-major, 16 tokens)
//   exposed_transfer_us.*
//                   the part of a transfer that remains when its prompt is computed. The limit is
//                   the time of the last piece alone (transfer_overlap.h). The aim is a ratio of 1
//                   or less.
//   crc_share       the checksum's share of the time of a copy that checks. The copy without a
//                   checksum is the fastest of memcpy and streaming stores of 16 and 64 bytes.
//                   Negative if the checksum costs nothing.
//
// A figure that was not measured, such as for a pool that is too large, is absent, with the reason.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/copy_bandwidth.h"
#include "bench/figure_list.h"
#include "bench/hand_over_time.h"
#include "bench/streaming_copy.h"
#include "bench/transfer_overlap.h"
#include "bench/transfer_tls.h"
#include "bench/transfer_worker.h"
#include "common/command_line.h"
#include "common/crc32c.h"
#include "common/crc32c_copy.h"
#include "kernels/cpu/usable_processors.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "kvtransfer/sockets/create_socket_transport.h"

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
constexpr int64_t kColdBytes = 64 << 20;

struct Medium {
  const char* name;
  MakeTransport make;
};

std::vector<Medium> Media() {
  const auto name = [next = std::make_shared<int>(0)] {
    return "bench-" + std::to_string(getpid()) + "-" + std::to_string((*next)++);
  };
  return {{"loopback",
           [name, network = CreateLoopbackNetwork()](TransportOptions options) {
             return CreateLoopbackTransport(network, name(), std::move(options));
           }},
          {"tcp",
           [](TransportOptions options) {
             return CreateTcpTransport("127.0.0.1:0", "", std::move(options));
           }},
          {"shm", [name](TransportOptions options) {
             return CreateSocketTransport(
                 {.tcp_listen = "", .tcp_advertise_host = "", .shm_name = name()},
                 std::move(options));
           }}};
}

KvLayout LayoutOf(const KvGroupSpec& group, KvLayoutKind kind, int32_t block_size, int64_t blocks) {
  const absl::StatusOr<KvLayout> layout = KvLayout::Create(group, kind, block_size, blocks);
  CHECK(layout.ok()) << layout.status();
  return *layout;
}

// A figure that has a target in place of a limit.
void AddTarget(FigureList& figures, const std::string& name, double value, const char* unit,
               double target, const char* direction) {
  std::printf("%-14s %10.3f %-6s target %s %g\n", name.c_str(), value, unit, direction, target);
  figures.Add(name, value, unit, target);
}

// Blocks of the sender's pool. A larger transfer sends them repeatedly.
int64_t LentBlocks(const KvLayout& layout, int64_t sender_bytes) {
  return std::clamp<int64_t>(sender_bytes / layout.bytes_per_block(), 1, layout.num_blocks());
}

// Runs of a row or of its plain copy: as many as move 256 MiB, within limits.
int64_t RunsFor(int64_t bytes) { return std::clamp<int64_t>((256 << 20) / bytes, 3, 50); }

std::string RowName(const Medium& medium, const Shape& shape, KvLayoutKind kind, int64_t count) {
  return std::string(medium.name) + "." + shape.name + "." + std::string(KvLayoutKindName(kind)) +
         "." + std::to_string(count) + "_blocks";
}

void CheckSame(TransferWorker& from, TransferWorker& to) {
  const KvLayout& there = from.layout();
  const KvLayout& here = to.layout();
  for (int64_t block = 0; block < here.num_blocks(); ++block) {
    for (int32_t piece = 0; piece < 2 * here.group().layers; ++piece) {
      const auto at = [&](const KvLayout& layout, int64_t of) {
        return layout.PieceOffset(piece / 2, piece % 2 == 1, of);
      };
      CHECK_EQ(std::memcmp(from.pool() + at(there, block % there.num_blocks()),
                           to.pool() + at(here, block), here.piece_bytes()),
               0);
    }
  }
}

void MeasureRow(const Medium& medium, const Shape& shape, KvLayoutKind kind, int64_t count,
                int64_t sender_bytes, double copy_rate, FigureList& figures) {
  const KvLayout layout = LayoutOf(shape.group, kind, kBlockSize, count);
  const int64_t lent = LentBlocks(layout, sender_bytes);
  TransferWorker from(medium.make, LayoutOf(shape.group, kind, kBlockSize, lent), 1);
  TransferWorker to(medium.make, layout, 2);
  uint64_t id = 1;
  MoveOnce(from, to, id++, count * kBlockSize);  // warm-up: opens the connection, touches pages
  const int64_t bytes = layout.pool_bytes();
  std::vector<double> seconds;
  for (int64_t i = RunsFor(bytes); i > 0; --i) {
    seconds.push_back(MoveOnce(from, to, id++, count * kBlockSize));
  }
  CheckSame(from, to);
  const double median = Median(seconds);
  const double rate = static_cast<double>(bytes) / median;
  const std::string layout_name(KvLayoutKindName(kind));
  std::printf("%-9s %-8s %-12s %6lld %10.1f %10.1f %8.2f %8.2f %8.2f\n", medium.name, shape.name,
              layout_name.c_str(), static_cast<long long>(count), bytes / 1e6, median * 1e6,
              rate / 1e9, copy_rate / 1e9, rate / copy_rate);
  std::fflush(stdout);
  figures.Add(RowName(medium, shape, kind, count), rate / 1e9, "GB/s", copy_rate / 1e9);
}

// Measures the rows whose names contain `rows`.
void MeasureTable(int64_t max_bytes, int64_t sender_bytes, const std::string& rows,
                  FigureList& figures) {
  std::printf("%-9s %-8s %-12s %6s %10s %10s %8s %8s %8s\n", "transport", "shape", "layout",
              "blocks", "MB", "us", "GB/s", "copy", "ratio");
  const std::vector<Medium> media = Media();
  for (const Shape& shape : kShapes) {
    for (const int64_t count : kBlockCounts) {
      const KvLayout layout = LayoutOf(shape.group, KvLayoutKind::kBlockMajor, kBlockSize, count);
      const bool fits = layout.pool_bytes() <= max_bytes;
      std::optional<double> copy_rate;  // measured if a row of this size is wanted
      for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
        for (const Medium& medium : media) {
          const std::string name = RowName(medium, shape, kind, count);
          if (name.find(rows) == std::string::npos) continue;
          if (!fits) {
            figures.AddAbsent(name, "GB/s", "the pool is larger than --max-mib");
            continue;
          }
          if (!copy_rate) {
            copy_rate = CopyBandwidth(layout.pool_bytes(),
                                      LentBlocks(layout, sender_bytes) * layout.bytes_per_block(),
                                      RunsFor(layout.pool_bytes()));
          }
          MeasureRow(medium, shape, kind, count, sender_bytes, *copy_rate, figures);
        }
      }
    }
  }
}

// Two pools of 64 MiB of SmolLM2 blocks. They are cold at every measurement.
class ColdBlocks {
 public:
  explicit ColdBlocks(const Medium& medium)
      : from_(medium.make, layout_, 1), to_(medium.make, layout_, 2) {
    MoveFirst();
  }
  // Transfers all blocks. The sender's checksums were computed before.
  double Move() {
    flush_();
    return MoveOnce(from_, to_, id_++, layout_.num_blocks() * kBlockSize);
  }
  // Same, but the sender must compute the checksums during the transfer.
  double MoveFirst() {
    from_.ReportFull();
    return Move();
  }
  double Memcpy() {
    flush_();
    const Instant start = Now();
    std::memcpy(to_.pool(), from_.pool(), bytes());
    return Seconds(start);
  }
  // Copies piece by piece with `copy`.
  template <typename Copy>
  double CopyPieces(const Copy& copy) {
    flush_();
    const auto piece = static_cast<size_t>(layout_.piece_bytes());
    const Instant start = Now();
    for (int64_t at = 0; at < bytes(); at += static_cast<int64_t>(piece)) {
      copy(to_.pool() + at, std::span<const std::byte>(from_.pool() + at, piece));
    }
    return Seconds(start);
  }
  int64_t bytes() const { return layout_.pool_bytes(); }

 private:
  static KvLayout MakeLayout() {
    const KvLayout one = LayoutOf(kShapes[0].group, KvLayoutKind::kBlockMajor, kBlockSize, 1);
    return LayoutOf(kShapes[0].group, KvLayoutKind::kBlockMajor, kBlockSize,
                    kColdBytes / one.pool_bytes());
  }
  CacheFlush flush_;
  const KvLayout layout_ = MakeLayout();
  uint64_t id_ = 1;
  TransferWorker from_;
  TransferWorker to_;
};

void MeasureCold(int repeats, FigureList& figures) {
  ColdBlocks shm(Media()[2]);
  std::vector<double> moved, moved_first, copied, summed, narrow, wide;
  uint32_t crc = 0;
  for (int i = 0; i < repeats; ++i) {
    moved_first.push_back(shm.MoveFirst());
    moved.push_back(shm.Move());
    copied.push_back(shm.Memcpy());
    summed.push_back(shm.CopyPieces([&](std::byte* to, std::span<const std::byte> from) {
      crc += CopyCrc32c(to, from, CopyStores::kStreaming);
    }));
    FinishStreaming();
    narrow.push_back(shm.CopyPieces(StreamingCopy16));
    wide.push_back(shm.CopyPieces(WidestCopy));
  }
  const double bytes = static_cast<double>(shm.bytes());
  std::printf(
      "cold 64 MiB (GB/s): shared memory %.2f, memcpy %.2f, copy with CRC32C %.2f, streaming copy "
      "by 16 bytes %.2f, by the widest stores %.2f (sums %08x)\n",
      bytes / Median(moved) / 1e9, bytes / Median(copied) / 1e9, bytes / Median(summed) / 1e9,
      bytes / Median(narrow) / 1e9, bytes / Median(wide) / 1e9, crc);
  AddTarget(figures, "shm_to_memcpy", Median(copied) / Median(moved), "", 0.95, ">=");
  AddTarget(figures, "shm_first", Median(copied) / Median(moved_first), "", 0.95, ">=");
  // The fastest of the plain copies represents a copy without a checksum.
  const double plain = std::min({Median(narrow), Median(wide), Median(copied)});
  AddTarget(figures, "shm_to_copy", plain / Median(moved), "", 1, "<=");
  AddTarget(figures, "crc_share", 1 - plain / Median(summed), "", 0.05, "<=");
}

void MeasureFixed(FigureList& figures) {
  const KvGroupSpec small{.layers = 1, .kv_heads = 1, .head_dim = 8, .type = KvType::kF16};
  const KvLayout layout = LayoutOf(small, KvLayoutKind::kBlockMajor, 1, 64);
  using Wait = TransferWorker::Wait;
  const Medium shm = Media()[2];
  TransferWorker from(shm.make, layout, 1);
  TransferWorker to(shm.make, layout, 2);
  uint64_t id = 1;
  std::vector<double> lone, stream, rested;
  for (int i = 0; i < 5000; ++i) lone.push_back(MoveOnce(from, to, id++, 1, Wait::kLooking));
  constexpr int64_t kAtOnce = 64;
  for (int round = 0; round < 200; ++round) {
    const uint64_t first = id;
    id += kAtOnce;
    const Instant start = Now();
    for (uint64_t i = first; i < id; ++i) PostReceive(to, i, 1);
    for (uint64_t i = first; i < id; ++i) PostSend(from, to, i, 1);
    to.WaitForEnds(kAtOnce, Wait::kSleeping);
    from.WaitForEnds(kAtOnce, Wait::kSleeping);
    stream.push_back(Seconds(start) / kAtOnce);
  }
  for (int i = 0; i < 300; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    rested.push_back(MoveOnce(from, to, id++, 1));
  }
  AddTarget(figures, "shm_fixed_us", Median(lone) * 1e6, "us", 5, "<=");
  const double socket = SocketMicroseconds();
  AddTarget(figures, "socket_us", socket, "us", socket, "=");
  AddTarget(figures, "shm_stream_us", Median(stream) * 1e6, "us", 5, "<=");
  const double wake = WakeMicroseconds();
  AddTarget(figures, "shm_rested_us", Median(rested) * 1e6, "us", 3 * wake, "three wakes:");
  AddTarget(figures, "wake_us", wake, "us", wake, "=");
}

void MeasureTcp(int repeats, FigureList& figures) {
  const absl::StatusOr<double> before = Iperf3BytesPerSecond(3);
  ColdBlocks tcp(Media()[1]);
  std::vector<double> moved;
  for (int i = 0; i < repeats; ++i) moved.push_back(tcp.Move());
  const double rate = static_cast<double>(tcp.bytes()) / Median(moved);
  std::printf("cold 64 MiB over TCP: %.2f GB/s\n", rate / 1e9);
  const absl::StatusOr<double> after = before.ok() ? Iperf3BytesPerSecond(3) : before;
  if (!after.ok()) {
    return figures.AddAbsent("tcp_to_iperf3", "ratio", std::string(after.status().message()));
  }
  const double peer = (*before + *after) / 2;
  std::printf("iperf3 before and after: %.2f and %.2f GB/s\n", *before / 1e9, *after / 1e9);
  AddTarget(figures, "tcp_to_iperf3", rate / peer, "", 0.90, ">=");
}

void MeasureTls(int repeats, FigureList& figures) {
  const BenchCertificates certificates;
  ColdBlocks plain(Media()[1]);
  ColdBlocks tls({"tls", TcpWithTls(certificates.OfWorker())});
  std::vector<double> plain_s, tls_s;
  for (int i = 0; i < repeats; ++i) {
    plain_s.push_back(plain.Move());
    tls_s.push_back(tls.Move());
  }
  const double rate = static_cast<double>(tls.bytes()) / Median(tls_s);
  AddTarget(figures, "kv_tls_to_plain", Median(plain_s) / Median(tls_s), "", 0.5, ">=");
  const absl::StatusOr<double> openssl = OpensslBytesPerSecond();
  if (!openssl.ok()) return figures.AddAbsent("kv_tls_to_openssl", "", "openssl is not installed");
  std::printf("TCP with TLS %.2f GB/s, openssl speed %.2f GB/s\n", rate / 1e9, *openssl / 1e9);
  AddTarget(figures, "kv_tls_to_openssl", rate / *openssl, "", 0.5, ">=");
}

// Measures transfers between cold pools of 64 MiB with different geometry, alternating with equal
// pools.
void MeasureReshape(int repeats, FigureList& figures) {
  const KvGroupSpec& group = kShapes[0].group;
  constexpr KvGeometry kEqual{KvLayoutKind::kBlockMajor, kBlockSize};
  const std::pair<KvGeometry, KvGeometry> cuts[] = {
      {kEqual, kEqual},
      {{KvLayoutKind::kLayerMajor, kBlockSize}, kEqual},
      {kEqual, {KvLayoutKind::kBlockMajor, 2 * kBlockSize}},
      {{KvLayoutKind::kBlockMajor, 2 * kBlockSize}, kEqual},
      {{KvLayoutKind::kLayerMajor, 64}, kEqual},
      {{KvLayoutKind::kBlockMajor, 128}, {KvLayoutKind::kLayerMajor, 1}}};
  const int64_t tokens =
      kColdBytes / LayoutOf(group, KvLayoutKind::kBlockMajor, 1, 1).pool_bytes() / 128 * 128;
  const auto name_of = [](const KvGeometry& cut) {
    return std::string(KvLayoutKindName(cut.layout)) + "." + std::to_string(cut.block_size);
  };
  CacheFlush flush;
  for (const Medium& medium : Media()) {
    struct Pair {
      TransferWorker from, to;
      uint64_t id = 1;
      std::vector<double> seconds = {};
    };
    std::vector<std::unique_ptr<Pair>> pairs;
    for (const auto& [from, to] : cuts) {
      const auto layout = [&](const KvGeometry& cut) {
        return LayoutOf(group, cut.layout, cut.block_size, tokens / cut.block_size);
      };
      pairs.push_back(std::unique_ptr<Pair>(new Pair{TransferWorker(medium.make, layout(from), 1),
                                                     TransferWorker(medium.make, layout(to), 2)}));
      pairs.back()->from.ReportFull();
      MoveOnce(pairs.back()->from, pairs.back()->to, pairs.back()->id++, tokens);
    }
    for (int i = 0; i < repeats; ++i) {
      for (const auto& pair : pairs) {
        flush();
        pair->seconds.push_back(MoveOnce(pair->from, pair->to, pair->id++, tokens));
      }
    }
    for (size_t i = 1; i < pairs.size(); ++i) {
      const std::string name = std::string("reshape.") + medium.name + "." +
                               name_of(cuts[i].first) + "_to_" + name_of(cuts[i].second);
      AddTarget(figures, name, Median(pairs[0]->seconds) / Median(pairs[i]->seconds), "", 1,
                "of equal pools");
    }
  }
}

void MeasureOverlaps(int repeats, FigureList& figures) {
  const OverlapShape shapes[] = {{kShapes[0].name, kShapes[0].group, 20'000},
                                 {kShapes[1].name, kShapes[1].group, 8'000}};
  std::printf("%-44s %10s %10s %8s\n", "exposed transfer", "us", "alone us", "ratio");
  for (const Medium& medium : Media()) {
    for (const OverlapShape& shape : shapes) {
      MeasureOverlap(medium.name, medium.make, shape, repeats,
                     [&](const std::string& name, double exposed_us, double alone_us) {
                       std::printf("%-44s %10.1f %10.1f %8.2f\n", name.c_str(), exposed_us,
                                   alone_us, exposed_us / alone_us);
                       figures.Add(name, exposed_us, "us", alone_us);
                     });
    }
  }
}

int Main(int argc, char** argv) {
  CommandLine line("Measures KV transfers between two workers in this process.");
  int64_t max_mib = 2048;
  int64_t sender_mib = 1 << 20;
  int32_t repeats = 25;
  bool table = true;
  std::string rows;
  SettingList settings;
  settings.Add("max-mib", &max_mib, 0, 1 << 20, "Skip larger pools. There are two of each size.");
  settings.Add("sender-mib", &sender_mib, 1, 1 << 20,
               "Maximum size of the sender's pool. A larger transfer sends its blocks repeatedly.");
  settings.Add("repeats", &repeats, 3, 1000, "Measurements per median of the cold figures.");
  settings.Add("table", &table, "Measure all shapes, layouts and counts before the figures.");
  settings.Add(
      "rows", &rows,
      "Measure only table rows whose name contains this (shm.llama8b.layer-major.16_blocks), "
      "and no figures.");
  line.AddSettings(settings, "Benchmark");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;

  FigureList figures;
  figures.AddCondition(
      "The sender and the receiver are threads of this process and share its " +
      std::to_string(UsableProcessors()) +
      " processors. iperf3's client and server are two processes on the same processors.");
  if (table) MeasureTable(max_mib << 20, sender_mib << 20, rows, figures);
  if (!rows.empty()) {
    figures.Print("transfer", /*seed=*/0);
    return 0;
  }
  MeasureCold(repeats, figures);
  MeasureFixed(figures);
  MeasureTcp(repeats, figures);
  MeasureTls(repeats, figures);
  MeasureReshape(std::min(repeats, 9), figures);
  MeasureOverlaps(std::min(repeats, 7), figures);
  figures.Print("transfer", /*seed=*/0);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
