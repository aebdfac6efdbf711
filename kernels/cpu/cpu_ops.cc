#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "common/crc32c.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/sample.h"
#include "kernels/exact_math.h"
#include "kernels/tensor_core/tensor_core_attention.h"

namespace baton {
namespace {

// Enqueues run(stream, args). When the op runs, it first reduces the row count in args to the
// stream's limit. rows_of(args) returns a reference to that count.
template <typename Args, typename RowsOf, typename Run>
void EnqueueRows(Stream& stream, const Args& args, const RowsOf& rows_of, const Run& run) {
  auto& cpu = static_cast<CpuStream&>(stream);
  RowLimit* const limit = cpu.capturing() ? nullptr : cpu.row_limit();
  if (limit == nullptr) {
    cpu.Enqueue([args, run](CpuStream& cpu) { run(cpu, args); });
    return;
  }
  cpu.Enqueue([limited = args, rows_of, run, limit](CpuStream& cpu) mutable {
    int64_t& rows = rows_of(limited);
    rows = std::min(rows, limit->Rows());
    run(cpu, limited);
  });
}

// rows_of for argument structs with a member `tokens`.
constexpr auto kTokens = [](auto& args) -> int64_t& { return args.tokens; };

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A unit should last a few microseconds, so that waking a thread for it pays. A thread should get
// several units, so that all threads end at about the same time.
constexpr int64_t kUnitElements = 8192;   // for elementwise ops
constexpr int64_t kRotaryElements = 128;  // sine and cosine in software are slow
constexpr int64_t kUnitsPerThread = 4;
constexpr int64_t kMinUnitProducts = 32 << 10;
constexpr int64_t kMaxUnitProducts = 16 << 20;
constexpr int64_t kPackUnitBytes = 256 << 10;
constexpr int64_t kLeastGatedTokens = 32;
constexpr int64_t kGatedRows = 64;   // rows of the gate that a fused kernel takes in one call
constexpr int64_t kUnitTokens = 64;  // activations of these stay in the second-level cache

// Calls fn(begin, end) for parts of [0, tokens). Each part has at least `unit_elements` elements,
// except perhaps the last.
template <typename Function>
void ForTokens(ThreadPool& pool, int64_t tokens, int64_t elements_per_token, int64_t unit_elements,
               const Function& fn) {
  if (tokens == 0) return;
  const int64_t least = CeilDiv(unit_elements, std::max<int64_t>(elements_per_token, 1));
  const int64_t fair = CeilDiv(tokens, kUnitsPerThread * pool.threads());
  const int64_t per_unit = std::max(least, fair);
  pool.ParallelFor(CeilDiv(tokens, per_unit), [&](int64_t unit, int) {
    fn(unit * per_unit, std::min((unit + 1) * per_unit, tokens));
  });
}

// Returns the rows for a unit of `tokens` tokens, in whole row groups. More than one group is
// rounded up to an even number, because kernels multiply row groups in pairs.
int64_t RowsPerUnit(const PackedMatrix& weight, int64_t tokens, int64_t row_units) {
  const int64_t products_per_group = kRowGroup * weight.cols * tokens;
  const int64_t fair = CeilDiv(CeilDiv(weight.rows, kRowGroup), row_units);
  const int64_t least = CeilDiv(kMinUnitProducts, products_per_group);
  const int64_t most = std::max(least, kMaxUnitProducts / products_per_group);
  const int64_t groups = std::clamp(fair, least, most);
  return kRowGroup * (groups + (groups > 1 ? groups % 2 : 0));
}

// Calls run(row begin, row end, token begin, token end) for each unit of a product. `rows` is the
// number of weight rows, or half of it for a gated product. Units begin at multiples of `row_step`.
template <typename Run>
void ForProductUnits(ThreadPool& pool, const MatMulArgs& args, int64_t rows, int64_t row_step,
                     const Run& run) {
  if (args.tokens == 0 || rows == 0) return;
  const int64_t token_units = CeilDiv(args.tokens, kUnitTokens);
  const int64_t tokens = CeilDiv(args.tokens, token_units);
  const int64_t wanted = CeilDiv(kUnitsPerThread * pool.threads(), token_units);
  const int64_t per_unit =
      pool.threads() == 1 ? rows
                          : RowsPerUnit(args.weight, tokens, wanted) / (args.weight.rows / rows);
  const int64_t rows_per_unit = CeilDiv(per_unit, row_step) * row_step;
  const int64_t row_units = CeilDiv(rows, rows_per_unit);
  pool.ParallelFor(token_units * row_units, [&](int64_t unit, int) {
    const int64_t row = unit % row_units * rows_per_unit;
    const int64_t token = unit / row_units * tokens;
    run(row, std::min(row + rows_per_unit, rows), token, std::min(token + tokens, args.tokens));
  });
}

void RunMatMul(const CpuKernels& kernels, ThreadPool& pool, const MatMulArgs& args) {
  ForProductUnits(pool, args, args.weight.rows, kRowGroup,
                  [&](int64_t row, int64_t row_end, int64_t token, int64_t token_end) {
                    kernels.matmul(args, row, row_end, token, token_end);
                  });
}

void RunSiluMul(const CpuKernels& kernels, ThreadPool& pool, const SiluMulArgs& args) {
  ForTokens(pool, args.tokens, args.cols, kUnitElements,
            [&](int64_t begin, int64_t end) { kernels.silu_mul(args, begin, end); });
}

// A product of few tokens is bound by reading weights. The unfused product reads them faster.
bool GatesAtOnce(const GatedMatMulArgs& args) {
  return args.product.tokens >= kLeastGatedTokens && IsQuantized(args.product.weight.format) &&
         args.product.weight.rows % (2 * kQuantGroup) == 0;
}

void RunGatedMatMul(const CpuKernels& kernels, ThreadPool& pool, const GatedMatMulArgs& args) {
  const MatMulArgs& product = args.product;
  if (!GatesAtOnce(args)) {
    RunMatMul(kernels, pool, product);
    RunSiluMul(kernels, pool, {product.out, product.tokens, product.weight.rows / 2, args.out});
    return;
  }
  ForProductUnits(pool, product, product.weight.rows / 2, kGatedRows,
                  [&](int64_t row, int64_t row_end, int64_t token, int64_t token_end) {
                    kernels.gated_matmul(product, args.out, row, row_end, token, token_end);
                  });
}

// Each unit rotates its tokens and then stores them.
void RunRopeKvWrite(const CpuKernels& kernels, ThreadPool& pool, const RopeKvWriteArgs& args) {
  const RopeArgs rope = {.x = args.qk,
                         .stride = args.stride,
                         .heads = args.query_heads + args.kv_heads,
                         .head_dim = args.head_dim,
                         .cosines = args.cosines,
                         .sines = args.sines,
                         .half = args.half,
                         .neighbours = args.neighbours,
                         .tokens = args.tokens};
  const KvWriteArgs write = {.k = args.qk + args.query_heads * args.head_dim,
                             .v = args.v,
                             .stride = args.stride,
                             .kv_heads = args.kv_heads,
                             .head_dim = args.head_dim,
                             .slot_mapping = args.slot_mapping,
                             .kv = args.kv,
                             .tokens = args.tokens};
  const int64_t elements = 2 * rope.half * rope.heads + 2 * write.kv_heads * write.head_dim;
  ForTokens(pool, args.tokens, elements, kUnitElements, [&](int64_t begin, int64_t end) {
    if (rope.half > 0) kernels.rope(rope, begin, end);
    kernels.kv_write(write, begin, end);
  });
}

void RunAttention(const CpuKernels& kernels, CpuStream& cpu, const PagedAttentionArgs& args) {
  if (kernels.tensor_core_attention == nullptr || !IsTensorCorePool(args.kv.type)) {
    RunPagedAttention(kernels, cpu.pool(), cpu.attention_scratch(), args);
    return;
  }
  cpu.pool().ParallelFor(args.tokens, [&](int64_t token, int) {
    kernels.tensor_core_attention(args, token, token + 1);
  });
}

void EmbedRange(const EmbedTokensArgs& args, int64_t token_begin, int64_t token_end) {
  const int64_t cols = args.table.cols;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t row = args.embedding_rows != nullptr ? args.embedding_rows[token] : -1;
    float* out = args.out + token * cols;
    if (row >= 0) {
      std::copy_n(args.embeddings + row * cols, cols, out);
    } else {
      UnpackRow(args.table, args.token_ids[token], out);
    }
  }
}

void RotaryRange(const RotaryTableArgs& args, int64_t token_begin, int64_t token_end) {
  for (int64_t token = token_begin; token < token_end; ++token) {
    for (int64_t i = 0; i < args.half; ++i) {
      const int64_t component = args.components != nullptr ? args.components[i] : 0;
      const int32_t position = args.positions[token * kPositionComponents + component];
      const double angle = position * args.frequencies[i];
      args.cosines[token * args.half + i] = static_cast<float>(args.factor * ExactCos(angle));
      args.sines[token * args.half + i] = static_cast<float>(args.factor * ExactSin(angle));
    }
  }
}

}  // namespace

size_t CpuOps::PackedBytes(WeightFormat format, int64_t rows, int64_t cols) const {
  return PackedMatrixBytes(format, rows, cols);
}

void CpuOps::PackMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                        std::byte* destination) const {
  const int64_t group_bytes = RowGroupBytes(format, cols);
  const int64_t groups = CeilDiv(rows, kRowGroup);
  const int64_t per_unit = CeilDiv(kPackUnitBytes, std::max<int64_t>(group_bytes, 1));
  pool_.ParallelFor(CeilDiv(groups, per_unit), [&](int64_t unit, int) {
    const int64_t row = unit * per_unit * kRowGroup;
    const int64_t offset = unit * per_unit * group_bytes;
    PackMatrixRows(format, std::min(per_unit * kRowGroup, rows - row), cols, source + offset,
                   destination + offset);
  });
}

void CpuOps::EmbedTokens(Stream& stream, const EmbedTokensArgs& args) const {
  EnqueueRows(stream, args, kTokens, [](CpuStream& cpu, const EmbedTokensArgs& args) {
    ForTokens(cpu.pool(), args.tokens, args.table.cols, kUnitElements,
              [&](int64_t begin, int64_t end) { EmbedRange(args, begin, end); });
  });
}

void CpuOps::RmsNorm(Stream& stream, const RmsNormArgs& args) const {
  EnqueueRows(stream, args, kTokens,
              [&kernels = kernels_](CpuStream& cpu, const RmsNormArgs& args) {
                ForTokens(cpu.pool(), args.tokens, args.cols, kUnitElements,
                          [&](int64_t begin, int64_t end) { kernels.rms_norm(args, begin, end); });
              });
}

void CpuOps::MatMul(Stream& stream, const MatMulArgs& args) const {
  EnqueueRows(stream, args, kTokens, [&kernels = kernels_](CpuStream& cpu, const MatMulArgs& args) {
    RunMatMul(kernels, cpu.pool(), args);
  });
}

void CpuOps::RotaryTable(Stream& stream, const RotaryTableArgs& args) const {
  EnqueueRows(stream, args, kTokens, [](CpuStream& cpu, const RotaryTableArgs& args) {
    ForTokens(cpu.pool(), args.tokens, args.half, kRotaryElements,
              [&](int64_t begin, int64_t end) { RotaryRange(args, begin, end); });
  });
}

void CpuOps::Rope(Stream& stream, const RopeArgs& args) const {
  EnqueueRows(stream, args, kTokens, [&kernels = kernels_](CpuStream& cpu, const RopeArgs& args) {
    ForTokens(cpu.pool(), args.tokens, 2 * args.half * args.heads, kUnitElements,
              [&](int64_t begin, int64_t end) { kernels.rope(args, begin, end); });
  });
}

void CpuOps::RopeKvWrite(Stream& stream, const RopeKvWriteArgs& args) const {
  EnqueueRows(stream, args, kTokens,
              [&kernels = kernels_](CpuStream& cpu, const RopeKvWriteArgs& args) {
                RunRopeKvWrite(kernels, cpu.pool(), args);
              });
}

void CpuOps::CompareKv(Stream& stream, const CompareKvArgs& args) const {
  EnqueueRows(stream, args, kTokens, [](CpuStream& cpu, const CompareKvArgs& args) {
    ForTokens(cpu.pool(), args.tokens, 2 * args.kv_heads * args.head_dim, kUnitElements,
              [&](int64_t begin, int64_t end) { plain::CompareKv(args, begin, end); });
  });
}

void CpuOps::PagedAttention(Stream& stream, const PagedAttentionArgs& args) const {
  EnqueueRows(stream, args, kTokens,
              [&kernels = kernels_](CpuStream& cpu, const PagedAttentionArgs& args) {
                RunAttention(kernels, cpu, args);
              });
}

void CpuOps::SiluMul(Stream& stream, const SiluMulArgs& args) const {
  EnqueueRows(stream, args, kTokens,
              [&kernels = kernels_](CpuStream& cpu, const SiluMulArgs& args) {
                RunSiluMul(kernels, cpu.pool(), args);
              });
}

void CpuOps::GatedMatMul(Stream& stream, const GatedMatMulArgs& args) const {
  EnqueueRows(
      stream, args, [](GatedMatMulArgs& args) -> int64_t& { return args.product.tokens; },
      [&kernels = kernels_](CpuStream& cpu, const GatedMatMulArgs& args) {
        RunGatedMatMul(kernels, cpu.pool(), args);
      });
}

void CpuOps::GatherRows(Stream& stream, const GatherRowsArgs& args) const {
  EnqueueRows(
      stream, args, [](GatherRowsArgs& args) -> int64_t& { return args.rows; },
      [](CpuStream& cpu, const GatherRowsArgs& args) {
        ForTokens(cpu.pool(), args.rows, args.cols, kUnitElements, [&](int64_t begin, int64_t end) {
          const int64_t stride = args.stride > 0 ? args.stride : args.cols;
          for (int64_t row = begin; row < end; ++row) {
            std::copy_n(args.x + args.indices[row] * stride, args.cols, args.out + row * stride);
          }
        });
      });
}

void CpuOps::Quantize(Stream& stream, const float* x, int64_t tokens, int64_t cols,
                      const Activations& out) const {
  struct Args {
    const float* x;
    int64_t tokens;
    int64_t cols;
    Activations out;
  };
  EnqueueRows(stream, Args{x, tokens, cols, out}, kTokens,
              [&kernels = kernels_](CpuStream& cpu, const Args& args) {
                ForTokens(cpu.pool(), args.tokens, args.cols, kUnitElements,
                          [&](int64_t begin, int64_t end) {
                            kernels.quantize(args.x, args.cols, args.out, begin, end);
                          });
              });
}

void CpuOps::Sample(Stream& stream, const SampleArgs& args) const {
  EnqueueRows(
      stream, args, [](SampleArgs& args) -> int64_t& { return args.count; },
      [](CpuStream& cpu, const SampleArgs& args) {
        RunSample(cpu.pool(), cpu.sample_scratch(), args);
      });
}

void CpuOps::FeedDrawnTokens(Stream& stream, const FeedDrawnTokensArgs& args) const {
  EnqueueRows(stream, args, kTokens, [](CpuStream&, const FeedDrawnTokensArgs& args) {
    for (int64_t token = 0; token < args.tokens; ++token) {
      const int32_t source = args.source[token];
      if (source >= 0) args.token_ids[token] = std::max<TokenId>(args.drawn[source], 0);
    }
  });
}

// A rank of a tensor-parallel group copies its heads of a block token by token, so lists are long.
void CpuOps::CopyRuns(Stream& stream, const CopyRunsArgs& args) const {
  if (args.runs.empty()) return;
  static_cast<CpuStream&>(stream).Enqueue(
      [from = args.from, to = args.to, checksums = args.checksums,
       runs = std::vector<ByteRun>(args.runs.begin(), args.runs.end())](CpuStream&) {
        for (const ByteRun& run : runs) {
          std::memmove(to + run.to, from + run.from, static_cast<size_t>(run.bytes));
        }
        for (size_t i = 0; checksums != nullptr && i < runs.size(); ++i) {
          checksums[i] = Crc32c(std::span(to + runs[i].to, static_cast<size_t>(runs[i].bytes)));
        }
      });
}

void CpuOps::CopyRows(Stream& stream, const CopyRowsArgs& args) const {
  if (args.runs.empty()) return;
  static_cast<CpuStream&>(stream).Enqueue(
      [from = args.from, to = args.to,
       runs = std::vector<ByteRows>(args.runs.begin(), args.runs.end())](CpuStream&) {
        for (const ByteRows& run : runs) {
          for (int64_t row = 0; row < run.rows; ++row) {
            std::memmove(to + run.to + row * run.to_stride, from + run.from + row * run.from_stride,
                         static_cast<size_t>(run.bytes));
          }
        }
      });
}

}  // namespace baton
