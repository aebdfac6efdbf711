// A device that counts the ops which are enqueued on it, and does what the one behind it does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace baton {

// Remembers how many rows each op had that had any.
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
    ops_.EmbedTokens(stream, Count(args, args.tokens));
  }
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override {
    ops_.RmsNorm(stream, Count(args, args.tokens));
  }
  void MatMul(Stream& stream, const MatMulArgs& args) const override {
    ops_.MatMul(stream, Count(args, args.tokens));
  }
  void RotaryTable(Stream& stream, const RotaryTableArgs& args) const override {
    ops_.RotaryTable(stream, Count(args, args.tokens));
  }
  void Rope(Stream& stream, const RopeArgs& args) const override {
    ops_.Rope(stream, Count(args, args.tokens));
  }
  void KvWrite(Stream& stream, const KvWriteArgs& args) const override {
    ops_.KvWrite(stream, Count(args, args.tokens));
  }
  void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const override {
    ops_.PagedAttention(stream, Count(args, args.tokens));
  }
  void SiluMul(Stream& stream, const SiluMulArgs& args) const override {
    ops_.SiluMul(stream, Count(args, args.tokens));
  }
  void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const override {
    ops_.GatedMatMul(stream, Count(args, args.product.tokens));
  }
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override {
    ops_.GatherRows(stream, Count(args, args.rows));
  }
  void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                const Activations& out) const override {
    ops_.Quantize(stream, x, Count(tokens, tokens), cols, out);
  }
  void Sample(Stream& stream, const SampleArgs& args) const override {
    ops_.Sample(stream, Count(args, args.count));
  }
  void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const override {
    ops_.FeedDrawnTokens(stream, Count(args, args.tokens));
  }

  std::vector<int64_t>& rows() { return rows_; }

 private:
  template <typename Args>
  const Args& Count(const Args& args, int64_t rows) const {
    if (rows > 0) rows_.push_back(rows);
    return args;
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
  std::unique_ptr<Stream> CreateStream() override { return device_.CreateStream(); }
  const Ops& ops() const override { return ops_; }
  // Of every op so far that had rows to compute, how many.
  std::vector<int64_t>& rows() { return ops_.rows(); }

 private:
  Device& device_;
  CountingOps ops_;
};

}  // namespace baton
