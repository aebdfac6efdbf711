// Measures how fast threads read a set of bytes again and again: the limit of a kernel that reads
// its weights or its KV once per run.
//
// The bandwidth depends on the size of the set, because the caches keep a part of it from one pass
// to the next. A limit must therefore come from a set that is as large as the kernel's.
//
// A pass reads every byte once, with loads that nothing waits for and prefetches. Each thread reads
// its share at several places in turn, which most processors do faster than one sequence of
// addresses. No pattern is the fastest on all processors, so several are tried.
//
// How fast a pass is also depends on which thread read each line last: the same loop on the same
// 94 MiB ran at 61 GB/s for seconds, and at 80 GB/s after the threads had claimed small pieces.
// Ops claim their units too. So such a pass comes before each measurement.
//
// The result is the fastest pass of all. It has no barriers as a step's ops have, so a step stays
// below it. A rest below 256 bytes per place is left out.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "bench/run_times.h"
#include "common/check.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace baton {

class ReadBandwidth {
 public:
  // Reads a set of `bytes`, rounded up to whole pages for each thread. Allocates it from `device`,
  // which must outlive this, so it has pages as the kernels' memory has. REQUIRES: bytes > 0 and
  // IsSupported(set).
  ReadBandwidth(Device& device, InstructionSet set, int threads, double bytes)
      : wide_(set == InstructionSet::kAvx512 || set == InstructionSet::kAvx512NoVnni),
        pool_(threads) {
    const int64_t unit = kClaimed * threads;
    size_ = (static_cast<int64_t>(bytes) + unit - 1) / unit * unit;
    auto buffer = device.Allocate(static_cast<size_t>(size_), "bandwidth measurement");
    CHECK(buffer.ok()) << buffer.status();
    buffer_ = std::move(*buffer);
    std::memset(buffer_->data(), 1, static_cast<size_t>(size_));
  }

  // Measures again, and returns bytes per second of the fastest pass so far. Call it several times
  // during a measurement on a machine whose speed changes.
  double BytesPerSecond() {
    if (best_ == nullptr) {
      for (const Pattern& pattern : kPatterns) {
        const double seconds = PassSeconds(pattern, kTrySeconds);
        if (seconds < best_s_) best_ = &pattern;
        best_s_ = std::min(best_s_, seconds);
      }
    }
    for (int round = 0; round < kRounds; ++round) {
      best_s_ = std::min(best_s_, PassSeconds(*best_, kRoundSeconds));
    }
    return static_cast<double>(size_) / best_s_;
  }

 private:
  static constexpr int64_t kClaimed = 4096;
  static constexpr int64_t kTurn = 256;          // bytes read at one place before the next
  static constexpr double kTrySeconds = 0.02;    // of a pattern
  static constexpr double kRoundSeconds = 0.04;  // of the best pattern
  static constexpr int kRounds = 4;
  static constexpr double kLeastCallSeconds = 0.0005;

  struct Pattern {
    int64_t places;
    int64_t ahead;  // bytes from a load to its prefetch
  };
  static constexpr Pattern kPatterns[] = {{1, 512}, {1, 4096}, {3, 4096}, {4, 2048},
                                          {6, 512}, {6, 2048}, {8, 512}};

  // Returns the seconds of the fastest pass.
  double PassSeconds(const Pattern& pattern, double least_s) {
    const std::byte* const data = buffer_->data();
    pool_.ParallelFor(size_ / kClaimed, [&](int64_t piece, int) {
      Read(data + piece * kClaimed, kClaimed, /*places=*/1, /*ahead=*/0);
    });
    const int64_t share = size_ / pool_.threads();
    const auto read = [&](int64_t passes) {
      pool_.ParallelFor(pool_.threads(), [&](int64_t at, int) {
        for (int64_t pass = 0; pass < passes; ++pass) {
          Read(data + at * share, share, pattern.places, pattern.ahead);
        }
      });
    };
    const double one_s = BestSeconds([&] { read(1); }, 0);
    const int64_t passes = std::max<int64_t>(1, static_cast<int64_t>(kLeastCallSeconds / one_s));
    const double seconds = BestSeconds([&] { read(passes); }, least_s);
    const auto bytes = static_cast<double>(pool_.threads() * pattern.places *
                                           PartBytes(share, pattern.places) * passes);
    return seconds / bytes * static_cast<double>(size_);
  }

  // Bytes that are read at each place of `bytes`: whole turns.
  static int64_t PartBytes(int64_t bytes, int64_t places) { return bytes / places / kTurn * kTurn; }

  // Reads at `places` of the `bytes` at `data` in turn.
  void Read(const std::byte* data, int64_t bytes, int64_t places, int64_t ahead) const {
    const int64_t part = PartBytes(bytes, places);
    for (int64_t at = 0; at < part; at += kTurn) {
      for (int64_t place = 0; place < places; ++place) {
        const std::byte* const from = data + place * part + at;
        if (wide_) {
          asm volatile(
              ".irp line,0,64,128,192\nprefetcht0 \\line(%0,%1)\n.endr\n"
              ".irp line,0,64,128,192\nvmovdqu64 \\line(%0), %%zmm0\n.endr\n"
              :
              : "r"(from), "r"(ahead)
              : "xmm0");
        } else {
          asm volatile(
              ".irp line,0,64,128,192\n"
              "prefetcht0 \\line(%0,%1)\nvmovdqu \\line(%0), %%ymm0\n"
              "vmovdqu 32+\\line(%0), %%ymm0\n.endr\n"
              :
              : "r"(from), "r"(ahead)
              : "xmm0");
        }
      }
    }
    asm volatile("vzeroupper");
  }

  const bool wide_;
  ThreadPool pool_;
  int64_t size_ = 0;
  std::unique_ptr<DeviceBuffer> buffer_;
  const Pattern* best_ = nullptr;
  double best_s_ = 1e9;
};

// Bandwidths of sets of many sizes. Sizes that differ by less than a tenth share a measurement, at
// the smaller size.
class BandwidthBySize {
 public:
  // REQUIRES: as of ReadBandwidth.
  BandwidthBySize(Device& device, InstructionSet set, int threads)
      : device_(device), set_(set), threads_(threads) {}

  // REQUIRES: bytes >= 1.
  double BytesPerSecond(double bytes) {
    const int step = static_cast<int>(std::floor(std::log(bytes) / std::log(1.1)));
    double& rate = rates_[step];
    if (rate == 0) {
      rate = ReadBandwidth(device_, set_, threads_, std::pow(1.1, step)).BytesPerSecond();
    }
    return rate;
  }

 private:
  Device& device_;
  const InstructionSet set_;
  const int threads_;
  std::map<int, double> rates_;  // bytes per second, by the size's logarithm
};

}  // namespace baton
