// Parts of cuda_bench: memory of a device with random contents, times of enqueued work, and figures
// with their limits.
//
// Times are wall-clock times of repeated work, divided by the number of repeats. Decode steps run
// as a graph, as in the engine: the times contain the gaps between kernels, but not the launch of
// each kernel by the host. Prefill is enqueued op by op, as in the engine. A captured op may take
// another kernel than an enqueued one (CudaOps::PagedAttention).
//
// A figure is the median of its runs, as those of peers are (bench/gpu_peers.py). Its key `best` is
// the value of the fastest run.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/figure_list.h"
#include "common/check.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/device.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace baton {

// Seconds of one piece of work.
struct WorkTime {
  double median_s = 0;
  double best_s = 0;
};

// The numbers in a buffer.
enum class Numbers : uint8_t { kF32, kF16 };

class DeviceBench {
 public:
  // Each time is measured for at least `least_s` seconds. 0: once, for a rehearsal.
  DeviceBench(Device& device, uint64_t seed, double least_s)
      : device_(device), stream_(device.CreateStream()), random_(seed), least_s_(least_s) {}

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }
  std::mt19937_64& random() { return random_; }
  KernelLauncher& launcher() {
    auto* const launcher = dynamic_cast<KernelLauncher*>(stream_.get());
    CHECK(launcher != nullptr);
    return *launcher;
  }

  // The bytes of a pattern, which make() returns at their first use.
  template <typename Make>
  std::span<const std::byte> Pattern(const std::string& name, const Make& make) {
    const auto at = patterns_.find(name);
    return at != patterns_.end() ? at->second : patterns_.emplace(name, make()).first->second;
  }

  // Device memory that repeats `pattern`.
  std::unique_ptr<DeviceBuffer> Repeating(std::span<const std::byte> pattern, size_t bytes) {
    auto buffer = device_.Allocate(std::max<size_t>(bytes, 256), "bench");
    CHECK(buffer.ok()) << buffer.status();
    std::byte* const to = (*buffer)->data();
    size_t done = std::min(pattern.size(), bytes);
    stream_->Copy(to, pattern.data(), done);
    while (done < bytes) {
      const size_t more = std::min(done, bytes - done);
      stream_->Copy(to + done, to, more);
      done += more;
    }
    stream_->Synchronize();
    return *std::move(buffer);
  }
  // Device memory with numbers of the normal distribution.
  std::unique_ptr<DeviceBuffer> Filled(size_t bytes, Numbers numbers = Numbers::kF32) {
    return Repeating(Normal(numbers), bytes);
  }
  // Device memory with zeros.
  std::unique_ptr<DeviceBuffer> Zeros(size_t bytes) {
    auto buffer = device_.Allocate(std::max<size_t>(bytes, 256), "bench");
    CHECK(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }
  template <typename T>
  std::unique_ptr<DeviceBuffer> Holding(const std::vector<T>& values) {
    return Repeating(std::as_bytes(std::span(values)), values.size() * sizeof(T));
  }

  // Time of one `work(i)`, which enqueues ops, in a graph of `repeats` of it.
  template <typename Work>
  WorkTime InGraph(int repeats, const Work& work) {
    stream_->BeginCapture();
    for (int i = 0; i < repeats; ++i) work(i);
    const std::unique_ptr<OpGraph> graph = stream_->EndCapture();
    return Measure(repeats, [&] { stream_->Launch(*graph); });
  }
  // The same without a graph. For work that lasts longer on the device than on the host.
  template <typename Work>
  WorkTime Enqueued(int repeats, const Work& work) {
    return Measure(repeats, [&] {
      for (int i = 0; i < repeats; ++i) work(i);
    });
  }

  // Adds and prints a figure: a rate of `amount` units a second. `limit` has its unit; 0: no limit.
  // The reference is valid until the next call.
  nlohmann::json& ReportRate(const std::string& name, double amount, const WorkTime& time,
                             const char* unit, double limit) {
    nlohmann::json& figure = Report(name, amount / time.median_s, unit, limit);
    figure["best"] = amount / time.best_s;
    return figure;
  }
  nlohmann::json& ReportMicroseconds(const std::string& name, const WorkTime& time, double limit) {
    nlohmann::json& figure = Report(name, time.median_s * 1e6, "us", limit);
    figure["best"] = time.best_s * 1e6;
    return figure;
  }
  nlohmann::json& Report(const std::string& name, double value, const char* unit, double limit) {
    std::printf("%-44s %12.2f %-9s %12.2f %7.3f\n", name.c_str(), value, unit, limit,
                limit == 0 ? 0 : value / limit);
    std::fflush(stdout);
    return figures_.Add(name, value, unit, limit == 0 ? std::nullopt : std::optional(limit));
  }
  FigureList& figures() { return figures_; }

 private:
  std::span<const std::byte> Normal(Numbers numbers) {
    const size_t size = numbers == Numbers::kF32 ? 4 : 2;
    return Pattern(size == 4 ? "f32" : "f16", [&] {
      std::vector<std::byte> made(size_t{4} << 20);
      std::normal_distribution<float> normal(0, 1);
      for (size_t at = 0; at < made.size(); at += size) {
        const float value = normal(random_);
        const uint16_t half = F32ToF16(value);
        std::memcpy(&made[at], size == 4 ? static_cast<const void*>(&value) : &half, size);
      }
      return made;
    });
  }

  template <typename Run>
  WorkTime Measure(int repeats, const Run& run) {
    using Clock = std::chrono::steady_clock;
    constexpr size_t kLeastRuns = 3;
    constexpr size_t kUsualRuns = 5;  // unless they take more than kLongSeconds
    constexpr double kLongSeconds = 2;
    constexpr size_t kMostRuns = 10'000;
    std::vector<double> seconds;
    double total_s = 0;
    const auto goes_on = [&] {
      const size_t runs = seconds.size();
      if (least_s_ == 0) return runs == 0;
      if (runs < kLeastRuns || (runs < kUsualRuns && total_s < kLongSeconds)) return true;
      return total_s < least_s_ && runs < kMostRuns;
    };
    for (bool warm = false; goes_on(); warm = true) {
      const auto start = Clock::now();
      run();
      stream_->Synchronize();
      const double run_s = std::chrono::duration<double>(Clock::now() - start).count();
      if (!warm) continue;
      seconds.push_back(run_s / repeats);
      total_s += run_s;
    }
    CHECK(device_.Health().ok()) << device_.Health();
    std::ranges::sort(seconds);
    return {.median_s = seconds[seconds.size() / 2], .best_s = seconds.front()};
  }

  Device& device_;
  const std::unique_ptr<Stream> stream_;
  std::mt19937_64 random_;
  const double least_s_;
  std::map<std::string, std::vector<std::byte>> patterns_;
  FigureList figures_;
};

}  // namespace baton
