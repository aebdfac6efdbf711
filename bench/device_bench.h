// Parts of cuda_bench: memory of a device with harmless contents, times of captured work, and
// figures with their limits.
//
// Times are wall-clock times of a graph that repeats the work, divided by the number of repeats. So
// they contain the gaps between kernels, but not the launch of each kernel by the host.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/figure_list.h"
#include "bench/run_times.h"
#include "common/check.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

class DeviceBench {
 public:
  DeviceBench(Device& device, uint64_t seed, double least_s)
      : device_(device), stream_(device.CreateStream()), random_(seed), least_s_(least_s) {
    auto pattern = device.AllocateStaging(kPatternBytes, "bench");
    CHECK(pattern.ok()) << pattern.status();
    pattern_ = *std::move(pattern);
    // Every pair of bytes is a small positive f16, bf16 or part of an f32. So no kernel meets a NaN
    // or an infinity in any of these formats.
    for (size_t i = 0; i < kPatternBytes; ++i) {
      pattern_->data()[i] = static_cast<std::byte>(random_() % 0x30);
    }
  }

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }
  std::mt19937_64& random() { return random_; }
  KernelLauncher& launcher() {
    auto* const launcher = dynamic_cast<KernelLauncher*>(stream_.get());
    CHECK(launcher != nullptr);
    return *launcher;
  }

  // Device memory with random small numbers.
  std::unique_ptr<DeviceBuffer> Filled(size_t bytes) {
    auto buffer = device_.Allocate(std::max<size_t>(bytes, 256), "bench");
    CHECK(buffer.ok()) << buffer.status();
    for (size_t at = 0; at < bytes; at += kPatternBytes) {
      stream_->Copy((*buffer)->data() + at, pattern_->data(), std::min(kPatternBytes, bytes - at));
    }
    stream_->Synchronize();
    return *std::move(buffer);
  }
  template <typename T>
  std::unique_ptr<DeviceBuffer> Holding(const std::vector<T>& values) {
    auto buffer = device_.Allocate(values.size() * sizeof(T), "bench");
    CHECK(buffer.ok()) << buffer.status();
    stream_->Copy((*buffer)->data(), values.data(), values.size() * sizeof(T));
    stream_->Synchronize();
    return *std::move(buffer);
  }

  // Seconds of one `work`, which enqueues ops, in a graph of `repeats` of it.
  template <typename Work>
  double Seconds(int repeats, const Work& work) {
    stream_->BeginCapture();
    for (int i = 0; i < repeats; ++i) work(i);
    const std::unique_ptr<OpGraph> graph = stream_->EndCapture();
    const auto run = [&] {
      stream_->Launch(*graph);
      stream_->Synchronize();
    };
    run();
    const double seconds = BestSeconds(run, least_s_) / repeats;
    CHECK(device_.Health().ok()) << device_.Health();
    return seconds;
  }

  // Adds and prints a figure. `limit` has its unit; 0: no limit.
  void Report(const std::string& name, double value, const char* unit, double limit) {
    std::printf("%-44s %12.2f %-9s %12.2f %7.3f\n", name.c_str(), value, unit, limit,
                limit == 0 ? 0 : value / limit);
    std::fflush(stdout);
    figures_.Add(name, value, unit, limit == 0 ? std::nullopt : std::optional(limit));
  }
  FigureList& figures() { return figures_; }

 private:
  static constexpr size_t kPatternBytes = size_t{4} << 20;

  Device& device_;
  const std::unique_ptr<Stream> stream_;
  std::mt19937_64 random_;
  const double least_s_;
  std::unique_ptr<DeviceBuffer> pattern_;
  FigureList figures_;
};

}  // namespace baton
