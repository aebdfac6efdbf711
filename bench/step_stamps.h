// Times at which a device begins and ends the graph of each decode step. The stamps are kernels of
// the graph: the first one, and the last one. So the time between the end of one graph and the
// begin of the next is the device's own gap between steps, in which it copies the tokens to the
// host and the inputs of the next step.
//
// StampedDevice is a device whose ops add the stamps while a graph is captured. Give it to the
// runner in place of the real one.
//
// Thread safety: as the device; StepStamps is read while no step runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/synthetic_weights_params.h"
#include "common/check.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

class StepStamps {
 public:
  explicit StepStamps(Device& device) : device_(device) {
    for (Side& side : sides_) {
      auto memory = device.Allocate((1 + kCapacity) * sizeof(uint64_t), "step stamps");
      CHECK(memory.ok()) << memory.status();
      side.memory = *std::move(memory);
    }
  }

  void Begin(Stream& stream) const { Stamp(stream, sides_[0]); }
  void End(Stream& stream) const { Stamp(stream, sides_[1]); }

  // Microseconds between the end of a graph and the begin of the next, for the newest `steps`
  // steps: at most steps - 1 values.
  std::vector<double> GapsUs(int64_t steps) const {
    const std::vector<uint64_t> begins = Times(sides_[0]);
    const std::vector<uint64_t> ends = Times(sides_[1]);
    const size_t count = std::min(begins.size(), ends.size());
    std::vector<double> gaps;
    for (size_t i = count - std::min<size_t>(count, steps) + 1; i < count; ++i) {
      gaps.push_back(static_cast<double>(begins[i] - ends[i - 1]) / 1e3);
    }
    return gaps;
  }

 private:
  static constexpr int64_t kCapacity = 1 << 14;
  struct Side {
    std::unique_ptr<DeviceBuffer> memory;  // the count, then the times
  };

  static void Stamp(Stream& stream, const Side& side) {
    auto* const launcher = dynamic_cast<KernelLauncher*>(&stream);
    CHECK(launcher != nullptr);
    auto* const count = side.memory->as<uint64_t>();
    const StampTimeParams params = {count, count + 1, kCapacity};
    launcher->Launch("baton_stamp_time", {}, &params, sizeof(params));
  }
  // Returns the stamps, the oldest first.
  std::vector<uint64_t> Times(const Side& side) const {
    std::vector<uint64_t> all(1 + kCapacity);
    const std::unique_ptr<Stream> stream = device_.CreateStream();
    stream->Copy(all.data(), side.memory->data(), all.size() * sizeof(uint64_t));
    stream->Synchronize();
    const auto count = static_cast<int64_t>(all[0]);
    std::vector<uint64_t> times;
    for (int64_t i = std::max<int64_t>(0, count - kCapacity); i < count; ++i) {
      times.push_back(all[1 + i % kCapacity]);
    }
    return times;
  }

  Device& device_;
  Side sides_[2];
};

// The ops of a device. In a graph, the first op of a decode step has a stamp before it, and the
// last one a stamp behind it (LlamaRunner::CaptureFor).
class StampedOps final : public Ops {
 public:
  StampedOps(const Ops& ops, const StepStamps& stamps) : ops_(ops), stamps_(stamps) {}

  void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const override {
    if (stream.capturing()) stamps_.Begin(stream);
    ops_.FeedDrawnTokens(stream, args);
  }
  void Sample(Stream& stream, const SampleArgs& args) const override {
    ops_.Sample(stream, args);
    if (stream.capturing()) stamps_.End(stream);
  }

  size_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const override {
    return ops_.PackedBytes(format, rows, cols);
  }
  void PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                  std::byte* destination) const override {
    ops_.PackMatrix(format, rows, cols, source, destination);
  }
  void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const override {
    ops_.EmbedTokens(stream, args);
  }
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override {
    ops_.RmsNorm(stream, args);
  }
  void MatMul(Stream& stream, const MatMulArgs& args) const override { ops_.MatMul(stream, args); }
  void RotaryTable(Stream& stream, const RotaryTableArgs& args) const override {
    ops_.RotaryTable(stream, args);
  }
  void Rope(Stream& stream, const RopeArgs& args) const override { ops_.Rope(stream, args); }
  void RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const override {
    ops_.RopeKvWrite(stream, args);
  }
  void CompareKv(Stream& stream, const CompareKvArgs& args) const override {
    ops_.CompareKv(stream, args);
  }
  void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const override {
    ops_.PagedAttention(stream, args);
  }
  bool SharesSegments(const PagedAttentionArgs& shape, int64_t rows) const override {
    return ops_.SharesSegments(shape, rows);
  }
  int64_t SavedBySharing(const PagedAttentionArgs& shape, std::span<const int32_t> slots,
                         std::span<const int32_t> shared_segments) const override {
    return ops_.SavedBySharing(shape, slots, shared_segments);
  }
  void SiluMul(Stream& stream, const SiluMulArgs& args) const override {
    ops_.SiluMul(stream, args);
  }
  void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const override {
    ops_.GatedMatMul(stream, args);
  }
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override {
    ops_.GatherRows(stream, args);
  }
  void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                const Activations& out) const override {
    ops_.Quantize(stream, x, tokens, cols, out);
  }
  void CopyRuns(Stream& stream, const CopyRunsArgs& args) const override {
    ops_.CopyRuns(stream, args);
  }
  void CopyRows(Stream& stream, const CopyRowsArgs& args) const override {
    ops_.CopyRows(stream, args);
  }

 private:
  const Ops& ops_;
  const StepStamps& stamps_;
};

// REQUIRES: `device` and `stamps` outlive it.
class StampedDevice final : public Device {
 public:
  StampedDevice(Device& device, const StepStamps& stamps)
      : device_(device), ops_(device.ops(), stamps) {}

  const Ops& ops() const override { return ops_; }
  std::string Description() const override { return device_.Description(); }
  std::string_view backend() const override { return device_.backend(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return device_.Allocate(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t bytes,
                                                               std::string_view purpose) override {
    return device_.AllocateShared(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateSharedStaging(
      size_t bytes, std::string_view purpose) override {
    return device_.AllocateSharedStaging(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t bytes, std::string_view purpose,
                                                        bool shared) override {
    return device_.Reserve(bytes, purpose, shared);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateStaging(size_t bytes,
                                                                std::string_view purpose) override {
    return device_.AllocateStaging(bytes, purpose);
  }
  size_t allocated_bytes() const override { return device_.allocated_bytes(); }
  DeviceMemory Memory() const override { return device_.Memory(); }
  absl::Status Health() const override { return device_.Health(); }
  bool asynchronous() const override { return device_.asynchronous(); }
  bool host_accessible() const override { return device_.host_accessible(); }
  std::unique_ptr<Stream> CreateStream() override { return device_.CreateStream(); }
  std::unique_ptr<Event> CreateEvent() override { return device_.CreateEvent(); }
  Numerics numerics() const override { return device_.numerics(); }

 private:
  Device& device_;
  const StampedOps ops_;
};

}  // namespace baton
