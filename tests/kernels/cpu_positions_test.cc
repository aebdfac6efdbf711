// Tests positions in the CPU's ops: rotary tables, and queries whose keys have shifted positions.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/exact_math.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7007;

struct Backend {
  explicit Backend(int threads, const CpuKernels& kernels = PlainKernels())
      : pool(threads), ops(kernels, pool), stream(pool, CpuStream::Runs::kInline) {}
  ThreadPool pool;
  CpuOps ops;
  CpuStream stream;
};

TEST(CpuPositions, RotaryTablesAreSineAndCosineRoundedOnceByComponent) {
  Backend backend(2);
  const std::vector<double> frequencies = {1.0, 0.01};
  const std::vector<uint8_t> components = {2, 0};
  std::vector<int32_t> positions;
  for (int t = 0; t < 300; ++t) positions.insert(positions.end(), {t, -1, 100000 + t});
  std::vector<float> cosines(600), sines(600);
  backend.ops.RotaryTable(backend.stream, {positions.data(), frequencies.data(), components.data(),
                                           cosines.data(), sines.data(), 300, 2});
  for (int t = 0; t < 300; ++t) {
    EXPECT_EQ(cosines[2 * t], static_cast<float>(ExactCos(100000.0 + t)));
    EXPECT_EQ(sines[2 * t + 1], static_cast<float>(ExactSin(t * 0.01)));
  }
  backend.ops.RotaryTable(backend.stream, {positions.data(), frequencies.data(), nullptr,
                                           cosines.data(), sines.data(), 300, 2});
  EXPECT_EQ(cosines[2 * 7], static_cast<float>(ExactCos(7.0)));
  backend.ops.RotaryTable(backend.stream, {positions.data(), frequencies.data(), nullptr,
                                           cosines.data(), sines.data(), 300, 2, 1.1386});
  for (int t = 0; t < 300; ++t) {
    EXPECT_EQ(cosines[2 * t], static_cast<float>(1.1386 * ExactCos(t)));
    EXPECT_EQ(sines[2 * t], static_cast<float>(1.1386 * ExactSin(t)));
  }
}

// Attention of one head in binary64. `q` and `k` are not rotated yet.
std::vector<double> AttendRotated(const std::vector<float>& q, double q_position,
                                  const std::vector<std::vector<float>>& k,
                                  const std::vector<double>& k_positions,
                                  const std::vector<std::vector<float>>& v,
                                  const std::vector<double>& frequencies) {
  const size_t dim = q.size();
  std::vector<double> out(dim);
  double total = 0;
  for (size_t slot = 0; slot < k.size(); ++slot) {
    double score = 0;
    for (size_t i = 0; i < dim / 2; ++i) {
      const double turn = (q_position - k_positions[slot]) * frequencies[i];
      const double a = q[2 * i] * std::cos(turn) - q[2 * i + 1] * std::sin(turn);
      const double b = q[2 * i] * std::sin(turn) + q[2 * i + 1] * std::cos(turn);
      score += a * k[slot][2 * i] + b * k[slot][2 * i + 1];
    }
    const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
    total += weight;
    for (size_t d = 0; d < dim; ++d) out[d] += weight * v[slot][d];
  }
  for (double& value : out) value /= total;
  return out;
}

// Keys are stored rotated for their own position. Attention must add each run's `shift` to it.
TEST(CpuPositions, AShiftedQueryScoresKeysThatStandElsewhere) {
  constexpr int64_t kDim = 32, kSlots = 150, kStride = kDim + 5;
  constexpr int32_t kPosition = 700;
  Backend backend(2, KernelsFor(BestInstructionSet()));
  std::mt19937_64 random(kSeed);
  std::vector<double> frequencies;
  for (int i = 0; i < kDim / 2; ++i) frequencies.push_back(std::pow(100.0, -2.0 * i / kDim));
  for (const KvType type : {KvType::kF32, KvType::kInt8, KvType::kFp8}) {
    // Runs of 60, 50 and 40 slots, stored in the order second, third, first, at various positions.
    const std::vector<VisibleRun> places = {{90, 150, 90, 0}, {0, 50, -7, 1}, {50, 90, 50, 2}};
    const std::vector<int32_t> shifts = {0, 123, -45};
    std::vector<int32_t> positions;  // of all slots, then of the query rows
    std::vector<double> counted;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const int run = slot >= 90 ? 0 : slot < 50 ? 1 : 2;
      const auto stored = static_cast<int32_t>(random() % 600);
      positions.insert(positions.end(), kPositionComponents, stored);
      counted.push_back(stored + shifts[run]);
    }
    for (const int32_t shift : shifts) {
      positions.insert(positions.end(), kPositionComponents, kPosition - shift);
    }
    // Rows of K, then three rows of one query.
    std::vector<float> rows = RandomFloats(random, (kSlots + 3) * kStride);
    const std::vector<float> values = RandomFloats(random, kSlots * kStride);
    std::vector<std::vector<float>> k, v;
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      k.emplace_back(rows.begin() + slot * kStride, rows.begin() + slot * kStride + kDim);
      v.emplace_back(values.begin() + slot * kStride, values.begin() + slot * kStride + kDim);
    }
    float* const query = rows.data() + kSlots * kStride;
    const std::vector<float> q(query, query + kDim);
    const std::vector<double> expected = AttendRotated(q, kPosition, k, counted, v, frequencies);

    const std::vector<int32_t> zeros = {0, 0};
    backend.ops.GatherRows(backend.stream,
                           {query, zeros.data(), query + kStride, 2, kDim, kStride});
    std::vector<float> cosines((kSlots + 3) * kDim / 2), sines = cosines;
    backend.ops.RotaryTable(backend.stream, {positions.data(), frequencies.data(), nullptr,
                                             cosines.data(), sines.data(), kSlots + 3, kDim / 2});
    backend.ops.Rope(backend.stream, {rows.data(), kStride, 1, kDim, cosines.data(), sines.data(),
                                      kDim / 2, true, kSlots + 3});
    std::vector<float> pool(2 * 256 * 40);
    const KvLayerView kv{.base = pool.data(),
                         .type = type,
                         .block_size_log2 = 8,
                         .block_stride = 2 * 256 * 40,
                         .token_stride = 40,
                         .head_stride = kDim,
                         .value_offset = 256 * 40,
                         .scale_offset = 32};
    std::vector<int64_t> slots(kSlots);
    for (int64_t slot = 0; slot < kSlots; ++slot) slots[slot] = slot;
    backend.ops.RopeKvWrite(backend.stream, {.qk = rows.data(),
                                             .v = values.data(),
                                             .stride = kStride,
                                             .kv_heads = 1,
                                             .head_dim = kDim,
                                             .slot_mapping = slots.data(),
                                             .kv = kv,
                                             .tokens = kSlots});
    const RowRuns row = {.run_count = 3, .last_begin = 50, .last_end = 90};
    const std::vector<int32_t> sequence = {0}, first_block = {0};
    std::vector<float> out(kDim);
    backend.ops.PagedAttention(
        backend.stream,
        {query, kStride, out.data(), 1, 1, kDim, 1.0f / std::sqrt(static_cast<float>(kDim)), kv,
         sequence.data(), places.data(), &row, nullptr, 0, first_block.data(), nullptr, 1});
    for (int64_t d = 0; d < kDim; ++d) {
      ASSERT_NEAR(out[d], expected[d], type == KvType::kF32 ? 5e-6 : 0.03) << KvTypeName(type);
    }
  }
}

}  // namespace
}  // namespace baton
