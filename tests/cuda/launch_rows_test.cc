// Compares the bits of the CUDA kernels on rows with the plain ones (NUMERICS §3, §5).
#include "kernels/cuda/launch_rows.h"

#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/guarded_rows.h"

namespace baton {
namespace {

// Runs an op that fills activations, plainly and as a kernel. Compares each form, with and without
// the others. op(activations, plain) runs it.
template <typename Op>
void ExpectPlainRows(int64_t tokens, int64_t cols, const Op& op) {
  for (const bool wants_f32 : {true, false}) {
    for (const bool wants_q8 : {true, false}) {
      if (wants_q8 ? cols % 32 != 0 : !wants_f32) continue;
      OwnedActivations expected(tokens, cols);
      GuardedActivations actual(tokens, cols);
      Activations plain_out = expected.view(), out = actual.view();
      if (!wants_f32) plain_out.f32 = out.f32 = nullptr;
      if (!wants_q8) plain_out.q8 = out.q8 = nullptr;
      op(plain_out, true);
      op(out, false);
      ASSERT_NO_FATAL_FAILURE(
          actual.ExpectEqual(expected, absl::StrCat("cols ", cols, " f32 ", wants_f32)));
    }
  }
}

TEST(CudaRows, RmsNormEqualsPlainAtOddShapes) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  for (const int64_t cols :
       {1, 15, 16, 17, 31, 32, 33, 96, 100, 576, 2080, 4096, 4128, 8200, 9001}) {
    const int64_t tokens = cols > 1000 ? 2 : 3;
    const auto x = random() % 2 == 0 ? RandomFloats(random, tokens * cols, 4)
                                     : ExtremeFloats(random, tokens * cols);
    const auto weight = RandomFloats(random, cols);
    ASSERT_NO_FATAL_FAILURE(ExpectPlainRows(tokens, cols, [&](const Activations& out, bool plain) {
      const RmsNormArgs args = {x.data(), weight.data(), 1e-5f, tokens, cols, out};
      if (plain) return PlainKernels().rms_norm(args, 0, tokens);
      LaunchRmsNorm(launcher, args);
    }));
  }
}

TEST(CudaRows, RmsNormOfInfinitiesAndNansEqualsPlain) {
  ChosenLauncher launcher;
  std::mt19937_64 random(TestSeed());
  const int64_t tokens = 3, cols = 64;
  auto x = RandomFloats(random, tokens * cols);
  x[5] = std::numeric_limits<float>::infinity();
  x[cols + 7] = std::numeric_limits<float>::quiet_NaN();
  const auto weight = RandomFloats(random, cols);
  ExpectPlainRows(tokens, cols, [&](const Activations& out, bool plain) {
    const RmsNormArgs args = {x.data(), weight.data(), 1e-5f, tokens, cols, out};
    if (plain) return PlainKernels().rms_norm(args, 0, tokens);
    LaunchRmsNorm(launcher, args);
  });
}

TEST(CudaRows, SiluMulEqualsPlainAtOddShapesAndForInfinitiesAndNans) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  for (const int64_t cols : {1, 15, 16, 33, 64, 96, 100, 544, 1536}) {
    const int64_t tokens = 3;
    auto gate_up = ExtremeFloats(random, tokens * 2 * cols);
    gate_up[0] = -std::numeric_limits<float>::infinity();
    gate_up[cols] = 2;
    gate_up[2 * cols] = std::numeric_limits<float>::quiet_NaN();
    gate_up[3 * cols] = 1;
    ASSERT_NO_FATAL_FAILURE(ExpectPlainRows(tokens, cols, [&](const Activations& out, bool plain) {
      const SiluMulArgs args = {gate_up.data(), tokens, cols, out};
      if (plain) return PlainKernels().silu_mul(args, 0, tokens);
      LaunchSiluMul(launcher, args);
    }));
  }
}

// Tests Exp through Silu: around its clamps and at ties of its rounding, and at every exponent.
TEST(CudaRows, ExponentialsEqualPlainOverTheWholeRange) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  std::vector<float> gate;
  for (const float near : {88.3762626647949f, -88.3762626647949f, 87.3365478515625f,
                           -87.3365478515625f, 0.34657359f, -0.34657359f, 126.0f, 1e30f}) {
    const uint32_t bits = std::bit_cast<uint32_t>(near);
    for (uint32_t i = 0; i < 65; ++i) gate.push_back(std::bit_cast<float>(bits - 32 + i));
  }
  while (gate.size() < 8192) gate.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  const auto cols = static_cast<int64_t>(gate.size());
  gate.resize(2 * cols, 1.0f);
  std::vector<float> expected(cols);
  Guarded<float> actual(cols);
  PlainKernels().silu_mul({gate.data(), 1, cols, {.f32 = expected.data()}}, 0, 1);
  LaunchSiluMul(launcher, {gate.data(), 1, cols, {.f32 = actual.data()}});
  ExpectSameBits(expected, actual.values(), "silu");
}

TEST(CudaRows, QuantizeEqualsPlainAlsoForInfinitiesAndNans) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  for (const int64_t cols : {32, 64, 96, 544}) {
    const int64_t tokens = 5;
    auto x = ExtremeFloats(random, tokens * cols);
    x[3] = std::numeric_limits<float>::infinity();
    x[cols + 3] = std::bit_cast<float>(0x7fc00080u);  // a payload that quantises to −128
    x[cols + 4] = std::bit_cast<float>(0xff800001u);  // signalling
    for (int64_t i = 0; i < 32; ++i) x[2 * cols + i] = 0;
    for (int64_t i = 0; i < 32; ++i) x[3 * cols + i] = std::bit_cast<float>(uint32_t(i));
    ASSERT_NO_FATAL_FAILURE(ExpectPlainRows(tokens, cols, [&](const Activations& out, bool plain) {
      if (plain) return PlainKernels().quantize(x.data(), cols, out, 0, tokens);
      LaunchQuantize(launcher, x.data(), tokens, cols, out);
    }));
  }
}

TEST(CudaRows, ANanThatADeviceMadeQuantisesToZeroLikeTheCpus) {
  ChosenLauncher launcher;
  std::vector<float> x(32, 1.0f);
  x[9] = std::bit_cast<float>(0x7fffffffu);
  GuardedActivations out(1, 32);
  LaunchQuantize(launcher, x.data(), 1, 32, out.view());
  EXPECT_EQ(out.q8.values()[9], 0);
  EXPECT_EQ(out.q8.values()[8], 127);
}

TEST(CudaRows, GatherRowsCopiesTheGivenColumnsOnly) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  for (const int64_t cols : {1, 7, 64, 515}) {
    for (const int64_t padding : {0, 3, 4}) {
      const int64_t stride = cols + padding;
      const auto x = RandomFloats(random, 6 * stride);
      const std::vector<int32_t> indices = {4, 0, 4, 5};
      Guarded<float> out(4 * stride, -1.0f);
      LaunchGatherRows(launcher, {.x = x.data(),
                                  .indices = indices.data(),
                                  .out = out.data(),
                                  .rows = 4,
                                  .cols = cols,
                                  .stride = padding == 0 ? 0 : stride});
      const std::vector<float> values = out.values();
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t c = 0; c < stride; ++c) {
          ASSERT_EQ(values[row * stride + c], c < cols ? x[indices[row] * stride + c] : -1.0f)
              << row << " " << c;
        }
      }
      out.ExpectGuards("gathered rows");
    }
  }
}

TEST(CudaRows, EmbeddingRowsOfEveryFormatEqualTheUnpackedRows) {
  std::mt19937_64 random(TestSeed());
  ChosenLauncher launcher;
  for (const WeightFormat format : kAllWeightFormats) {
    for (const int64_t wanted : {1, 13, 64, 160, 1312}) {
      const int64_t cols = WholeBlocks(format, wanted);
      const BothMatrices table(random, format, 45, cols);
      const auto embeddings = RandomFloats(random, 3 * cols);
      const std::vector<int32_t> tokens = {0, 44, 7, 8, 31, 33, 15};
      const std::vector<int32_t> rows = {-1, -1, 2, -1, -1, 0, -1};
      for (const bool with_embeddings : {false, true}) {
        Guarded<float> out(7 * cols);
        LaunchEmbedTokens(launcher, {.table = table.ForCuda(),
                                     .token_ids = tokens.data(),
                                     .embedding_rows = with_embeddings ? rows.data() : nullptr,
                                     .embeddings = embeddings.data(),
                                     .out = out.data(),
                                     .tokens = 7});
        const std::vector<float> values = out.values();
        std::vector<float> expected(cols);
        for (int64_t t = 0; t < 7; ++t) {
          if (with_embeddings && rows[t] >= 0) {
            std::copy_n(embeddings.data() + rows[t] * cols, cols, expected.data());
          } else {
            UnpackRow(table.ForCpu(), tokens[t], expected.data());
          }
          const std::vector<float> row(values.begin() + t * cols, values.begin() + (t + 1) * cols);
          ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
              expected, row,
              absl::StrCat(std::string(WeightFormatName(format)), " cols ", cols, " t ", t)));
        }
        out.ExpectGuards("embeddings");
      }
    }
  }
}

TEST(CudaRows, NoTokensStartNoKernel) {
  ChosenLauncher launcher;
  LaunchRmsNorm(launcher, RmsNormArgs());
  LaunchSiluMul(launcher, SiluMulArgs());
  LaunchQuantize(launcher, nullptr, 0, 32, {});
  LaunchGatherRows(launcher, GatherRowsArgs());
  LaunchEmbedTokens(launcher, {.table = {WeightFormat::kQ4_0, 32, 32, nullptr}});
}

}  // namespace
}  // namespace baton
