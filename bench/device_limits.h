// Limits of a GPU that explain the times of other kernels. For the section `limits` of cuda_bench.
//
//   limits.mma_s8, .mma_bf16, .wgmma_bf16   TOPS of matrix products without memory: operands in
//                                           registers, for wgmma in shared memory
//   limits.l2.one_sm, .all_sms              bytes a clock and multiprocessor from the second-level
//                                           cache, by one or all multiprocessors
//   limits.kernel.*                         µs of one kernel in a graph of many that do nothing:
//                                           with one block, with one for each multiprocessor, and
//                                           with those that have almost all shared memory
//   limits.prologue.*                       clocks from the begin of a block, the median of blocks:
//                                           first parameter, barriers, first load, first copy
//   limits.prologue.gap                     ns from the end of the last block of a launch to the
//                                           begin of the first block of the next one, in a graph
//   limits.prologue.skew                    ns from the first block's begin to the last block's
//
// Thread safety: pure functions of a DeviceBench.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/device_bench.h"
#include "bench/device_limits_params.h"
#include "bench/median_interval.h"
#include "kernels/numerics.h"

namespace baton {

class DeviceLimits {
 public:
  // `tiny`: as little work as possible, for a rehearsal.
  DeviceLimits(DeviceBench& bench, bool tiny)
      : bench_(bench),
        tiny_(tiny),
        blocks_(bench.launcher().multiprocessors()),
        operands_(bench.Filled(size_t{1} << 16, Numbers::kF16)),
        sink_(bench.Zeros(4)) {}

  // Operations a second of mma.sync on int8: the limit of products of integers.
  double MmaS8() { return Peak("baton_peak_mma_s8", 2, MmaOps(32), 0).rate; }

  void Report() {
    ReportPeak("limits.mma_s8", Peak("baton_peak_mma_s8", 2, MmaOps(32), 0));
    ReportPeak("limits.mma_bf16", Peak("baton_peak_mma_bf16", 2, MmaOps(16), 0));
    if (bench_.device().numerics() == Numerics::kT1Sm90) {
      const double ops = 2.0 * 64 * kWgmmaPeakCols * 16 * kWgmmaPeakSteps * kLimitThreads / 128;
      ReportPeak("limits.wgmma_bf16", Peak("baton_peak_wgmma_bf16", 1, ops, kWgmmaPeakBytes));
    }
    ReportL2("limits.l2.one_sm", 1);
    ReportL2("limits.l2.all_sms", blocks_);
    ReportEmpty("limits.kernel.one_block", 1, 0);
    ReportEmpty("limits.kernel.all_sms", blocks_, 0);
    ReportEmpty("limits.kernel.all_sms_shared", blocks_, bench_.launcher().max_shared_bytes());
    ReportPrologue();
  }

 private:
  struct Rate {
    WorkTime time;
    double ops = 0;
    double rate = 0;  // operations/s
  };

  // Of one turn of a block.
  static double MmaOps(int depth) { return 2.0 * 16 * 8 * depth * kWarpSums * kLimitThreads / 32; }
  Rate Peak(const char* kernel, int blocks_each, double ops_of_turn, size_t shared) {
    const PeakParams params = {operands_->as<uint32_t>(), sink_->as<uint32_t>(),
                               tiny_ ? 1 : 20'000};
    const int64_t blocks = tiny_ ? 1 : int64_t{blocks_each} * blocks_;
    const auto launch = [&](int) {
      bench_.launcher().Launch(
          kernel, {{blocks, 1, 1}, {kLimitThreads, 1, 1}, static_cast<uint32_t>(shared)}, &params,
          sizeof(params));
    };
    Rate found = {.time = bench_.InGraph(1, launch)};
    found.ops = ops_of_turn * static_cast<double>(params.turns * blocks);
    found.rate = found.ops / found.time.median_s;
    return found;
  }
  void ReportPeak(const char* name, const Rate& rate) {
    bench_.ReportRate(name, rate.ops / 1e12, rate.time, "TOPS", 0);
  }

  template <typename T>
  std::vector<T> ToHost(const DeviceBuffer& buffer, int64_t count) {
    std::vector<T> values(count);
    bench_.stream().Copy(values.data(), buffer.data(), count * sizeof(T));
    bench_.stream().Synchronize();
    return values;
  }

  void ReportL2(const char* name, int64_t blocks) {
    const size_t bytes = tiny_ ? size_t{64} << 10 : size_t{8} << 20;
    const auto read = bench_.Filled(bytes);
    const auto clocks = bench_.Zeros(blocks * sizeof(uint64_t));
    const L2ReadParams params = {read->data(), static_cast<int64_t>(bytes / 16), tiny_ ? 2 : 5,
                                 clocks->as<uint64_t>(), sink_->as<uint32_t>()};
    bench_.InGraph(1, [&](int) {
      bench_.launcher().Launch("baton_read_l2", {{blocks, 1, 1}, {kL2Threads, 1, 1}, 0}, &params,
                               sizeof(params));
    });
    std::vector<double> rates;
    for (const uint64_t taken : ToHost<uint64_t>(*clocks, blocks)) {
      rates.push_back(static_cast<double>(bytes) * static_cast<double>(params.turns - 1) /
                      static_cast<double>(std::max<uint64_t>(taken, 1)));
    }
    bench_.Report(name, MedianOf(rates).median, "B/clock", 0);
  }

  void ReportEmpty(const char* name, int64_t blocks, uint32_t shared) {
    const int launches = tiny_ ? 2 : 200;
    const EmptyParams params = {};
    bench_.ReportMicroseconds(name,
                              bench_.InGraph(launches,
                                             [&](int) {
                                               bench_.launcher().Launch(
                                                   "baton_empty",
                                                   {{blocks, 1, 1}, {kLimitThreads, 1, 1}, shared},
                                                   &params, sizeof(params));
                                             }),
                              0);
  }

  void ReportPrologue() {
    const int launches = tiny_ ? 2 : 20;
    const int64_t blocks = blocks_;
    const auto bytes = bench_.Filled(blocks * kPrologueBytes);
    const auto times = bench_.Zeros(launches * blocks * sizeof(PrologueTimes));
    bench_.InGraph(launches, [&](int i) {
      const PrologueParams params = {bytes->data(), times->as<PrologueTimes>() + i * blocks,
                                     sink_->as<uint32_t>()};
      bench_.launcher().Launch(
          "baton_prologue",
          {{blocks, 1, 1}, {kLimitThreads, 1, 1}, static_cast<uint32_t>(kPrologueBytes + 16)},
          &params, sizeof(params));
    });
    const auto all = ToHost<PrologueTimes>(*times, launches * blocks);
    const auto median = [&](const char* name, uint64_t PrologueTimes::*member) {
      std::vector<double> clocks;
      for (const PrologueTimes& of_block : all) {
        clocks.push_back(static_cast<double>(of_block.*member));
      }
      bench_.Report(std::string("limits.prologue.") + name, MedianOf(clocks).median, "clocks", 0);
    };
    median("params", &PrologueTimes::params);
    median("barrier", &PrologueTimes::barrier);
    median("load", &PrologueTimes::load);
    median("copy", &PrologueTimes::copy);
    std::vector<double> gaps, skews;
    uint64_t last_end = 0;
    for (int i = 0; i < launches; ++i) {
      const auto* const of_launch = &all[i * blocks];
      uint64_t first = of_launch->began_ns, last = first, end = of_launch->ended_ns;
      for (int64_t block = 1; block < blocks; ++block) {
        first = std::min(first, of_launch[block].began_ns);
        last = std::max(last, of_launch[block].began_ns);
        end = std::max(end, of_launch[block].ended_ns);
      }
      if (i > 0) gaps.push_back(static_cast<double>(first) - static_cast<double>(last_end));
      skews.push_back(static_cast<double>(last - first));
      last_end = end;
    }
    bench_.Report("limits.prologue.gap", MedianOf(gaps).median, "ns", 0);
    bench_.Report("limits.prologue.skew", MedianOf(skews).median, "ns", 0);
  }

  DeviceBench& bench_;
  const bool tiny_;
  const int blocks_;  // one for each multiprocessor
  const std::unique_ptr<DeviceBuffer> operands_, sink_;
};

}  // namespace baton
