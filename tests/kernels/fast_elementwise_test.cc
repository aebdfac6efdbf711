// Compares the bits of vector norm, gate, int8 activations, rotation and KV write with the plain
// ones.
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/naive_fp8.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

class FastElementwise : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FastElementwise, FastInstructionSets(), NameOf);

// Runs an op that fills activations on both kernels. Compares each form, with and without f32.
template <typename Op>
void ExpectPlainActivations(InstructionSet set, int64_t tokens, int64_t cols, const Op& op) {
  for (bool wants_f32 : {true, false}) {
    for (bool wants_q8 : {true, false}) {
      if (wants_q8 && cols % kQuantGroup != 0) continue;
      OwnedActivations expected(tokens, cols);
      OwnedActivations actual(tokens, cols);
      for (auto* form : {&expected, &actual}) {
        Activations out = form->view();
        if (!wants_f32) out.f32 = nullptr;
        if (!wants_q8) out.q8 = nullptr;
        op(form == &expected ? PlainKernels() : KernelsFor(set), out);
      }
      const std::string what = absl::StrCat("cols ", cols, " f32 ", wants_f32);
      EXPECT_EQ(expected.q8, actual.q8) << what;
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected.f32, actual.f32, what));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected.scale, actual.scale, what));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected.scaled_sum, actual.scaled_sum, what));
    }
  }
}

std::vector<float> MixedFloats(std::mt19937_64& random, size_t count) {
  return random() % 2 == 0 ? RandomFloats(random, count, 4) : ExtremeFloats(random, count);
}

constexpr int64_t kCols[] = {1, 15, 16, 17, 31, 32, 33, 47, 48, 64, 96, 100, 576};

TEST_P(FastElementwise, RmsNormEqualsPlain) {
  std::mt19937_64 random(TestSeed());
  for (int64_t cols : kCols) {
    const int64_t tokens = 3;
    const auto x = MixedFloats(random, tokens * cols);
    const auto weight = RandomFloats(random, cols);
    ASSERT_NO_FATAL_FAILURE(ExpectPlainActivations(
        GetParam(), tokens, cols, [&](const CpuKernels& kernels, const Activations& out) {
          kernels.rms_norm({x.data(), weight.data(), 1e-5f, tokens, cols, out}, 0, tokens);
        }));
  }
}

TEST_P(FastElementwise, SiluMulEqualsPlain) {
  std::mt19937_64 random(TestSeed());
  for (int64_t cols : kCols) {
    const int64_t tokens = 3;
    auto gate_up = MixedFloats(random, tokens * 2 * cols);
    gate_up[0] = -std::numeric_limits<float>::infinity();
    gate_up[cols] = 2;
    ASSERT_NO_FATAL_FAILURE(ExpectPlainActivations(
        GetParam(), tokens, cols, [&](const CpuKernels& kernels, const Activations& out) {
          kernels.silu_mul({gate_up.data(), tokens, cols, out}, 0, tokens);
        }));
  }
}

TEST_P(FastElementwise, QuantizeEqualsPlainAlsoForInfinitiesAndNans) {
  std::mt19937_64 random(TestSeed());
  for (int64_t cols : {32, 64, 96, 576}) {
    const int64_t tokens = 5;
    auto x = MixedFloats(random, tokens * cols);
    x[3] = std::numeric_limits<float>::infinity();
    x[cols + 3] = std::bit_cast<float>(0x7fc00080u);  // a payload that quantises to −128
    x[cols + 4] = std::bit_cast<float>(0xff800001u);  // signalling
    for (int64_t i = 0; i < 32; ++i) x[2 * cols + i] = 0;
    for (int64_t i = 0; i < 32; ++i) x[3 * cols + i] = std::bit_cast<float>(uint32_t(i));
    ASSERT_NO_FATAL_FAILURE(ExpectPlainActivations(
        GetParam(), tokens, cols, [&](const CpuKernels& kernels, const Activations& out) {
          kernels.quantize(x.data(), cols, out, 0, tokens);
        }));
  }
}

// Tests Exp through Silu: densely around its clamps, at ties of its rounding, and at every
// exponent.
TEST_P(FastElementwise, ExponentialsEqualPlainOverTheWholeRange) {
  std::mt19937_64 random(TestSeed());
  std::vector<float> gate;
  for (float near : {88.3762626647949f, -88.3762626647949f, 87.3365478515625f, -87.3365478515625f,
                     0.0f, 0.34657359f, -0.34657359f, 126.0f, 1e30f}) {
    const uint32_t bits = std::bit_cast<uint32_t>(near);
    for (uint32_t i = 0; i < 64; ++i) gate.push_back(std::bit_cast<float>(bits + i));
    for (uint32_t i = 1; i < 33 && bits > 64; ++i) gate.push_back(std::bit_cast<float>(bits - i));
  }
  while (gate.size() % 16 != 0 || gate.size() < 1 << 18) {
    const auto bits = static_cast<uint32_t>(random());
    gate.push_back(std::bit_cast<float>(bits));
  }
  const auto cols = static_cast<int64_t>(gate.size());
  gate.resize(2 * cols, 1.0f);
  std::vector<float> expected(cols);
  std::vector<float> actual(cols);
  PlainKernels().silu_mul({gate.data(), 1, cols, {.f32 = expected.data()}}, 0, 1);
  KernelsFor(GetParam()).silu_mul({gate.data(), 1, cols, {.f32 = actual.data()}}, 0, 1);
  ExpectSameBits(expected, actual, "silu");
}

TEST_P(FastElementwise, RopeEqualsPlainForBothPairings) {
  std::mt19937_64 random(TestSeed());
  const int64_t tokens = 3;
  for (bool neighbours : {true, false}) {
    for (int64_t half : {1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 64, 128}) {
      for (int64_t unrotated : {0, 5}) {
        const int64_t head_dim = 2 * half + unrotated;
        const int64_t heads = 3;
        const int64_t stride = heads * head_dim + 2;
        const auto x = ExtremeFloats(random, (tokens - 1) * stride + heads * head_dim);
        const auto cosines = RandomFloats(random, tokens * half);
        const auto sines = RandomFloats(random, tokens * half);
        auto expected = x;
        auto actual = x;
        RopeArgs args;
        args.stride = stride;
        args.heads = heads;
        args.head_dim = head_dim;
        args.cosines = cosines.data();
        args.sines = sines.data();
        args.half = half;
        args.neighbours = neighbours;
        args.tokens = tokens;
        args.x = expected.data();
        PlainKernels().rope(args, 0, tokens);
        args.x = actual.data();
        KernelsFor(GetParam()).rope(args, 0, tokens);
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
            expected, actual, absl::StrCat("half ", half, " neighbours ", neighbours)));
      }
    }
  }
}

TEST_P(FastElementwise, KvWriteEqualsPlainForEveryTypeAndBitPattern) {
  std::mt19937_64 random(TestSeed());
  const int64_t tokens = 6;
  const int64_t kv_heads = 2;
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (int64_t head_dim : {1, 15, 16, 40, 64, 80, 256}) {
      const int64_t stride = kv_heads * head_dim + 1;
      std::vector<float> k(tokens * stride);
      std::vector<float> v(tokens * stride);
      for (auto* rows : {&k, &v}) {
        for (float& value : *rows) {  // any bits, including NaNs; half of them near f16's range
          auto bits = static_cast<uint32_t>(random());
          if (bits % 2 == 0) bits = (bits & 0x8fffffffu) + 0x30000000u;
          value = std::bit_cast<float>(bits);
        }
      }
      const std::vector<int64_t> slots = {5, 0, -1, 7, 2, 4};
      KvWriteArgs args;
      args.k = k.data();
      args.v = v.data();
      args.stride = stride;
      args.kv_heads = kv_heads;
      args.head_dim = head_dim;
      args.slot_mapping = slots.data();
      args.tokens = tokens;
      args.kv.type = type;
      args.kv.block_size_log2 = 1;
      args.kv.head_stride = head_dim;
      args.kv.scale_offset = kv_heads * head_dim;
      args.kv.token_stride = kv_heads * head_dim + (HasScales(type) ? 4 * kv_heads + 1 : 0);
      args.kv.value_offset = 2 * args.kv.token_stride;
      args.kv.block_stride = 4 * args.kv.token_stride;
      const size_t bytes = 4 * args.kv.block_stride * KvTypeBytes(type);
      std::vector<std::byte> expected(bytes);
      std::vector<std::byte> actual(bytes);
      args.kv.base = expected.data();
      PlainKernels().kv_write(args, 0, tokens);
      args.kv.base = actual.data();
      KernelsFor(GetParam()).kv_write(args, 0, tokens);
      ASSERT_TRUE(expected == actual) << KvTypeName(type) << " head_dim " << head_dim;
    }
  }
}

// The largest magnitude of each row is 448, so values are rounded as they are: midpoints between
// e4m3 numbers, subnormal ones too, and their neighbours.
TEST_P(FastElementwise, Fp8WritesRoundTiesLikePlain) {
  std::mt19937_64 random(TestSeed());
  const int64_t slot = 0;
  for (int round = 0; round < 40; ++round) {
    const int64_t head_dim = 16 + round;
    std::vector<float> x(head_dim);
    for (float& value : x) {
      const auto low = static_cast<uint8_t>(random() % 0x7e);
      const double middle = (NaiveFp8Value(low) + NaiveFp8Value(static_cast<uint8_t>(low + 1))) / 2;
      const int32_t away = static_cast<int32_t>(random() % 3) - 1;
      value = std::bit_cast<float>(std::bit_cast<int32_t>(static_cast<float>(middle)) + away);
      if (random() % 2 == 0) value = -value;
    }
    x[random() % head_dim] = -448.0f;
    std::vector<uint8_t> expected(2 * (head_dim + 4)), actual(expected.size());
    KvWriteArgs args;
    args.k = args.v = x.data();
    args.stride = args.head_dim = args.kv.head_stride = args.kv.scale_offset = head_dim;
    args.kv_heads = args.tokens = 1;
    args.slot_mapping = &slot;
    args.kv.type = KvType::kFp8;
    args.kv.token_stride = args.kv.value_offset = head_dim + 4;
    args.kv.block_stride = 2 * args.kv.token_stride;
    args.kv.base = expected.data();
    PlainKernels().kv_write(args, 0, 1);
    args.kv.base = actual.data();
    KernelsFor(GetParam()).kv_write(args, 0, 1);
    ASSERT_EQ(expected, actual) << "head_dim " << head_dim;
  }
}

}  // namespace
}  // namespace baton
