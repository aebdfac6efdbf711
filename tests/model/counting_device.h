// Device that counts the enqueued ops and forwards them to another device. It asks row limits when
// an op is enqueued, so it works only with inline devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

// Records the number of rows of each op that has rows.
class CountingOps final : public Ops {
 public:
  explicit CountingOps(const Ops& ops) : ops_(ops) {}

  size_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const override {
    return ops_.PackedBytes(format, rows, cols);
  }
  void PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                  std::byte* destination) const override {
    ops_.PackMatrix(format, rows, cols, source, destination);
  }
  void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const override {
    EmbedTokensArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.EmbedTokens(stream, left); });
  }
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override {
    RmsNormArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.RmsNorm(stream, left); });
  }
  void MatMul(Stream& stream, const MatMulArgs& args) const override {
    MatMulArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.MatMul(stream, left); });
  }
  void RotaryTable(Stream& stream, const RotaryTableArgs& args) const override {
    RotaryTableArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.RotaryTable(stream, left); });
  }
  void Rope(Stream& stream, const RopeArgs& args) const override {
    RopeArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.Rope(stream, left); });
  }
  void RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const override {
    RopeKvWriteArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.RopeKvWrite(stream, left); });
  }
  void CompareKv(Stream& stream, const CompareKvArgs& args) const override {
    CompareKvArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.CompareKv(stream, left); });
  }
  void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const override {
    PagedAttentionArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.PagedAttention(stream, left); });
  }
  void SiluMul(Stream& stream, const SiluMulArgs& args) const override {
    SiluMulArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.SiluMul(stream, left); });
  }
  void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const override {
    GatedMatMulArgs left = args;
    WithoutLimit(stream, left.product.tokens, [&] { ops_.GatedMatMul(stream, left); });
  }
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override {
    GatherRowsArgs left = args;
    WithoutLimit(stream, left.rows, [&] { ops_.GatherRows(stream, left); });
  }
  void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                const Activations& out) const override {
    WithoutLimit(stream, tokens, [&] { ops_.Quantize(stream, x, tokens, cols, out); });
  }
  void Sample(Stream& stream, const SampleArgs& args) const override {
    SampleArgs left = args;
    WithoutLimit(stream, left.count, [&] { ops_.Sample(stream, left); });
  }
  void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const override {
    FeedDrawnTokensArgs left = args;
    WithoutLimit(stream, left.tokens, [&] { ops_.FeedDrawnTokens(stream, left); });
  }

  std::vector<int64_t>& rows() { return rows_; }

 private:
  // Reduces `rows` to the stream's row limit, records it, and runs `op` without a limit.
  template <typename Op>
  void WithoutLimit(Stream& stream, int64_t& rows, const Op& op) const {
    RowLimit* const limit = stream.row_limit();
    if (limit != nullptr && !stream.capturing()) rows = std::min(rows, limit->Rows());
    if (rows > 0) rows_.push_back(rows);
    stream.LimitRows(nullptr);
    op();
    stream.LimitRows(limit);
  }

  const Ops& ops_;
  mutable std::vector<int64_t> rows_;
};

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(Device& device) : device_(device), ops_(device.ops()) {}

  std::string Description() const override { return device_.Description(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return device_.Allocate(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t bytes,
                                                               std::string_view purpose) override {
    return device_.AllocateShared(bytes, purpose);
  }
  size_t allocated_bytes() const override { return device_.allocated_bytes(); }
  bool asynchronous() const override { return device_.asynchronous(); }
  std::unique_ptr<Stream> CreateStream() override { return device_.CreateStream(); }
  std::unique_ptr<Event> CreateEvent() override { return device_.CreateEvent(); }
  const Ops& ops() const override { return ops_; }
  // Number of rows of every op so far that had rows to compute.
  std::vector<int64_t>& rows() { return ops_.rows(); }

 private:
  Device& device_;
  CountingOps ops_;
};

}  // namespace baton
