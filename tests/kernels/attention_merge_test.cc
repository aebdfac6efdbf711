// Tests merging of segments and the final division, for every instruction set of this processor.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7005;
constexpr int64_t kHeadDim = 70;

class AttentionMerge : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, AttentionMerge, testing::ValuesIn(kInstructionSets),
                         NameOf);

AttentionState RandomState(std::mt19937_64& random) {
  AttentionState state;
  state.maximum = RandomFloats(random, 1, 10)[0];
  state.any_visible = true;
  const auto sums = RandomFloats(random, kLanes);
  for (int i = 0; i < kLanes; ++i) state.lane_sums[i] = std::abs(sums[i]);
  const auto output = RandomFloats(random, kHeadDim);
  std::copy(output.begin(), output.end(), state.output);
  return state;
}

TEST_P(AttentionMerge, IsTheLiteralTranscription) {
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    AttentionState running = RandomState(random);
    const AttentionState before = running;
    const AttentionState next = RandomState(random);
    KernelsFor(GetParam()).merge_attention(running, next, kHeadDim);
    const float maximum = std::max(before.maximum, next.maximum);
    const float a = plain::Exp(before.maximum - maximum);
    const float b = plain::Exp(next.maximum - maximum);
    ASSERT_EQ(running.maximum, maximum);
    ASSERT_TRUE(running.any_visible);
    for (int i = 0; i < kLanes; ++i) {
      ASSERT_EQ(running.lane_sums[i], std::fma(next.lane_sums[i], b, before.lane_sums[i] * a));
    }
    for (int64_t d = 0; d < kHeadDim; ++d) {
      ASSERT_EQ(running.output[d], std::fma(next.output[d], b, before.output[d] * a));
    }
  }
}

TEST_P(AttentionMerge, StatesWithoutAVisibleSlotChangeNothing) {
  std::mt19937_64 random(kSeed);
  const AttentionState full = RandomState(random);
  AttentionState empty = RandomState(random);  // its numbers must not affect the result
  empty.any_visible = false;
  empty.maximum = std::numeric_limits<float>::quiet_NaN();

  AttentionState running = full;
  KernelsFor(GetParam()).merge_attention(running, empty, kHeadDim);
  EXPECT_TRUE(std::equal(full.output, full.output + kHeadDim, running.output));
  EXPECT_EQ(running.maximum, full.maximum);

  running = empty;
  KernelsFor(GetParam()).merge_attention(running, full, kHeadDim);
  EXPECT_TRUE(running.any_visible);
  EXPECT_EQ(running.maximum, full.maximum);
  EXPECT_TRUE(std::equal(full.lane_sums, full.lane_sums + kLanes, running.lane_sums));
  EXPECT_TRUE(std::equal(full.output, full.output + kHeadDim, running.output));

  float out[kHeadDim];
  std::fill_n(out, kHeadDim, 5.0f);
  KernelsFor(GetParam()).finish_attention(empty, kHeadDim, out);
  EXPECT_TRUE(std::all_of(out, out + kHeadDim, [](float value) { return value == 0; }));
}

TEST_P(AttentionMerge, FinishDividesByTheSum) {
  std::mt19937_64 random(kSeed);
  const AttentionState state = RandomState(random);
  float out[kHeadDim];
  KernelsFor(GetParam()).finish_attention(state, kHeadDim, out);
  for (int64_t d = 0; d < kHeadDim; ++d) {
    EXPECT_EQ(out[d], state.output[d] / plain::Tree16(state.lane_sums));
  }
}

}  // namespace
}  // namespace baton
