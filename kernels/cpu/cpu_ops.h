// Ops implementation for the CPU. It divides each op into units for the thread pool and runs an
// instruction set's kernels on them. An op that is too small to share runs on the calling thread
// alone.
//
// Thread safety: immutable. PackMatrix uses `pool`; the other ops use the pool of their stream,
// which may be the same. REQUIRES: every stream is a CpuStream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace baton {

class CpuOps final : public Ops {
 public:
  // `kernels` and `pool` must outlive this object.
  CpuOps(const CpuKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

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
  void SiluMul(Stream& stream, const SiluMulArgs& args) const override;
  void GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const override;
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override;
  void Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                const Activations& out) const override;
  void Sample(Stream& stream, const SampleArgs& args) const override;
  void FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const override;
  // These are one operation of the stream for the whole list.
  void CopyRuns(Stream& stream, const CopyRunsArgs& args) const override;
  void CopyRows(Stream& stream, const CopyRowsArgs& args) const override;

 private:
  const CpuKernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace baton
