#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/attention_cost.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/launch_copies.h"
#include "kernels/cuda/launch_kv.h"
#include "kernels/cuda/launch_matmul.h"
#include "kernels/cuda/launch_rows.h"
#include "kernels/cuda/launch_sample.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/cuda/launch_tensor_matmul.h"
#include "kernels/cuda/pack_weights.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_matmul.h"

namespace baton {
namespace {

// Up to this many runs, a copy engine moves bytes over PCIe without any multiprocessor. More calls
// could fill the driver's queue of a stream, and the next one would block.
constexpr size_t kMostEngineCopies = 16;

CudaStream& CudaStreamOf(Stream& stream) { return static_cast<CudaStream&>(stream); }

// Reduces `rows` to the stream's row limit. Captured ops have no limit. Returns false if no row is
// left.
bool ReduceToLimit(const Stream& stream, int64_t& rows) {
  RowLimit* const limit = stream.capturing() ? nullptr : stream.row_limit();
  if (limit != nullptr) rows = std::min(rows, limit->Rows());
  return rows > 0;
}

// Calls launch(launcher, args) with args.tokens reduced to the row limit.
template <typename Args, typename Launch>
void LaunchTokens(Stream& stream, Args args, const Launch& launch) {
  if (ReduceToLimit(stream, args.tokens)) launch(CudaStreamOf(stream), args);
}

// Small runs by a kernel, the others by a copy engine.
void CopyUrgentRuns(Stream& stream, CopyRunsArgs args) {
  std::vector<ByteRun> small;
  for (const ByteRun& run : args.runs) {
    if (run.bytes <= kSmallRunBytes) {
      small.push_back(run);
    } else {
      stream.Copy(args.to + run.to, args.from + run.from, static_cast<size_t>(run.bytes));
    }
  }
  args.runs = small;
  LaunchCopySmallRuns(CudaStreamOf(stream), args);
}

}  // namespace

bool CudaOps::OnTensorCores(const PackedMatrix& weight) const {
  return IsT1(numerics_) && IsTensorCoreFormat(weight.format);
}

bool CudaOps::OnTensorCores(const KvLayerView& kv) const {
  return IsT1(numerics_) && IsTensorCorePool(kv.type);
}

size_t CudaOps::PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const {
  return DeviceMatrixBytes(format, rows, cols);
}

void CudaOps::PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                         std::byte* destination) const {
  PackDeviceMatrix(format, rows, cols, source, destination);
}

void CudaOps::EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const {
  LaunchTokens(stream, args, LaunchEmbedTokens);
}

void CudaOps::RmsNorm(Stream& stream, const RmsNormArgs& args) const {
  LaunchTokens(stream, args, LaunchRmsNorm);
}

void CudaOps::MatMul(Stream& stream, const MatMulArgs& args) const {
  if (!OnTensorCores(args.weight)) return LaunchTokens(stream, args, LaunchMatMul);
  LaunchTokens(stream, args, [this](KernelLauncher& launcher, const MatMulArgs& args) {
    LaunchTensorMatMul(launcher, args, numerics_);
  });
}

void CudaOps::RotaryTable(Stream& stream, const RotaryTableArgs& args) const {
  LaunchTokens(stream, args, LaunchRotaryTable);
}

void CudaOps::Rope(Stream& stream, const RopeArgs& args) const {
  LaunchTokens(stream, args, LaunchRope);
}

void CudaOps::RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const {
  LaunchTokens(stream, args, [this](KernelLauncher& launcher, const RopeKvWriteArgs& args) {
    LaunchRopeKvWrite(launcher, args, numerics_);
  });
}

void CudaOps::CompareKv(Stream& stream, const CompareKvArgs& args) const {
  LaunchTokens(stream, args, LaunchCompareKv);
}

// Graphs are captured for decode steps. Only the kernel for chunks reads shared segments once. The
// kind of a batch changes only the speed.
void CudaOps::PagedAttention(Stream& stream, const PagedAttentionArgs& args) const {
  const bool on_tensor_cores = OnTensorCores(args.kv);
  const bool shares = on_tensor_cores && args.shared_segments != nullptr;
  const AttentionBatch batch =
      stream.capturing() && !shares ? AttentionBatch::kDecode : AttentionBatch::kChunks;
  LaunchTokens(stream, args, [&](KernelLauncher& launcher, const PagedAttentionArgs& args) {
    if (on_tensor_cores) {
      LaunchTensorCoreAttention(launcher, args, batch, numerics_);
    } else {
      LaunchPagedAttention(launcher, args, batch);
    }
  });
}

bool CudaOps::SharesSegments(const PagedAttentionArgs& shape, int64_t rows) const {
  return OnTensorCores(shape.kv) && PlansRowsFast(shape, numerics_, rows);
}

int64_t CudaOps::SavedBySharing(const PagedAttentionArgs& shape, std::span<const int32_t> slots,
                                std::span<const int32_t> shared_segments) const {
  return OnTensorCores(shape.kv) ? ClocksSavedBySharing(shape, numerics_, slots, shared_segments)
                                 : -1;
}

void CudaOps::SiluMul(Stream& stream, const SiluMulArgs& args) const {
  LaunchTokens(stream, args, LaunchSiluMul);
}

void CudaOps::GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const {
  GatedMatMulArgs limited = args;
  if (!ReduceToLimit(stream, limited.product.tokens)) return;
  if (OnTensorCores(limited.product.weight)) {
    LaunchGatedTensorMatMul(CudaStreamOf(stream), limited, numerics_);
  } else {
    LaunchGatedMatMul(CudaStreamOf(stream), limited);
  }
}

void CudaOps::GatherRows(Stream& stream, const GatherRowsArgs& args) const {
  GatherRowsArgs limited = args;
  if (ReduceToLimit(stream, limited.rows)) LaunchGatherRows(CudaStreamOf(stream), limited);
}

void CudaOps::Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                       const Activations& out) const {
  if (!ReduceToLimit(stream, tokens)) return;
  LaunchQuantize(CudaStreamOf(stream), x, tokens, cols, out);
}

void CudaOps::Sample(Stream& stream, const SampleArgs& args) const {
  SampleArgs limited = args;
  if (ReduceToLimit(stream, limited.count)) LaunchSample(CudaStreamOf(stream), limited);
}

void CudaOps::FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const {
  LaunchTokens(stream, args, LaunchFeedDrawnTokens);
}

void CudaOps::CopyRuns(Stream& stream, const CopyRunsArgs& args) const {
  const bool by_engine = args.staging && args.checksums == nullptr;
  if (by_engine && args.urgent) return CopyUrgentRuns(stream, args);
  if (by_engine && args.runs.size() <= kMostEngineCopies) return Ops::CopyRuns(stream, args);
  LaunchCopyList(CudaStreamOf(stream), args);
}

void CudaOps::CopyRows(Stream& stream, const CopyRowsArgs& args) const {
  LaunchCopyRows(CudaStreamOf(stream), args);
}

}  // namespace baton
