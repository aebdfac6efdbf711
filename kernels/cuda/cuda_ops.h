// Ops implementation for CUDA. Each op reads the row limit of its stream. Then it enqueues the op's
// kernels for the numerics of this object (launch_*.h).
//
// Thread safety: immutable. The stream's rule applies to each call. REQUIRES: every stream is a
// CudaStream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace baton {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(Numerics numerics) : numerics_(numerics) {}
  Numerics numerics() const { return numerics_; }

  size_t PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const override;
  void PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                  std::byte* destination) const override;
  void EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const override;
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override;
  void MatMul(Stream& stream, const MatMulArgs& args) const override;
  void RotaryTable(Stream& stream, const RotaryTableArgs& args) const override;
  void Rope(Stream& stream, const RopeArgs& args) const override;
  void RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const override;
  void CompareKv(Stream& stream, const CompareKvArgs& args) const override;
  void PagedAttention(Stream& stream, const PagedAttentionArgs& args) const override;
  bool SharesSegments(const PagedAttentionArgs& shape, int64_t rows) const override;
  int64_t SavedBySharing(const PagedAttentionArgs& shape, std::span<const int32_t> slots,
                         std::span<const int32_t> shared_segments) const override;
  void SiluMul(Stream& stream, const SiluMulArgs& args) const override;
  void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const override;
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override;
  void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                const Activations& out) const override;
  void Sample(Stream& stream, const SampleArgs& args) const override;
  void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const override;
  void CopyRuns(Stream& stream, const CopyRunsArgs& args) const override;
  void CopyRows(Stream& stream, const CopyRowsArgs& args) const override;

 private:
  // Return true for products and attention that tensor cores compute (NUMERICS_T1).
  bool OnTensorCores(const PackedMatrix& weight) const;
  bool OnTensorCores(const KvLayerView& kv) const;

  const Numerics numerics_;
};

}  // namespace baton
