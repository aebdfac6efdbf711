// Compares the bits of vector products with those of the plain ones (NUMERICS §4).
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/packed_weights.h"
#include "tests/common/random_operations.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

class FastMatMul : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FastMatMul, FastInstructionSets(), NameOf);

struct Shape {
  WeightFormat format;
  int64_t rows;
  int64_t cols;
  int64_t tokens;
};

// One product with random weights. Fills `x` in every form that the format needs.
class Product {
 public:
  Product(std::mt19937_64& random, const Shape& shape, OwnedActivations& x)
      : shape_(shape), packed_(PackedMatrixBytes(shape.format, shape.rows, shape.cols)) {
    const auto source = RandomGgufMatrix(random, shape.format, shape.rows, shape.cols);
    PackMatrixRows(shape.format, shape.rows, shape.cols, source.data(), packed_.data());
    out_stride_ = shape.rows + static_cast<int64_t>(random() % 5);
    initial_ = RandomFloats(random, shape.tokens * out_stride_);
    args_.weight = {shape.format, shape.rows, shape.cols, packed_.data()};
    args_.x = x.view();
    args_.out_stride = out_stride_;
    args_.tokens = shape.tokens;
  }

  // Computes all rows and tokens in parts, as threads do. The cuts are at a multiple of 16 rows and
  // at any token.
  std::vector<float> Run(InstructionSet set, bool accumulate, int64_t row_cut, int64_t token_cut) {
    std::vector<float> out = initial_;
    MatMulArgs args = args_;
    args.out = out.data();
    args.accumulate = accumulate;
    const CpuKernels& kernels = KernelsFor(set);
    for (const auto& [row, row_end] : {std::pair{int64_t{0}, row_cut}, {row_cut, shape_.rows}}) {
      kernels.matmul(args, row, row_end, 0, token_cut);
      kernels.matmul(args, row, row_end, token_cut, shape_.tokens);
    }
    return out;
  }

 private:
  Shape shape_;
  ExactBytes packed_;
  int64_t out_stride_ = 0;
  std::vector<float> initial_;
  MatMulArgs args_;
};

void ExpectPlainProduct(std::mt19937_64& random, InstructionSet set, const Shape& shape,
                        OwnedActivations& x) {
  Product product(random, shape, x);
  const int64_t row_cut = random() % ((shape.rows + 15) / 16) * 16;
  const int64_t token_cut = random() % (shape.tokens + 1);
  const bool accumulate = random() % 2 == 0;
  ExpectSameBits(product.Run(InstructionSet::kPlain, accumulate, 0, 0),
                 product.Run(set, accumulate, row_cut, token_cut),
                 absl::StrCat(std::string(WeightFormatName(shape.format)), " rows ", shape.rows,
                              " cols ", shape.cols, " tokens ", shape.tokens, " row cut ", row_cut,
                              " token cut ", token_cut));
}

OwnedActivations QuantizedActivations(const std::vector<float>& values, int64_t tokens,
                                      int64_t cols) {
  OwnedActivations x(tokens, cols);
  PlainKernels().quantize(values.data(), cols, x.view(), 0, tokens);
  return x;
}

TEST_P(FastMatMul, EqualsPlainAtEveryTokenCountAndOddShapes) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kAllWeightFormats) {
    for (int64_t tokens = 1; tokens <= 70; tokens += tokens < 20 ? 1 : 10) {
      const int64_t cols = 32 * (1 + static_cast<int64_t>(random() % (tokens % 4 == 0 ? 60 : 6)));
      const Shape shape = {format, 1 + static_cast<int64_t>(random() % 100),
                           WholeBlocks(format, cols), tokens};
      auto x = QuantizedActivations(RandomFloats(random, tokens * shape.cols), tokens, shape.cols);
      ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random, GetParam(), shape, x));
    }
  }
}

// Computes in parts, as threads do. The cuts are at a multiple of 32 rows of the gate and at any
// token.
TEST_P(FastMatMul, GatedProductsEqualPlainAtOddShapes) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kQuantizedFormats) {
    for (int64_t tokens : {1, 5, 6, 7, 32, 64, 65, 70}) {
      const int64_t cols = WholeBlocks(format, 32 * (1 + static_cast<int64_t>(random() % 30)));
      const int64_t gates = 32 * (1 + static_cast<int64_t>(random() % 6));
      auto x = QuantizedActivations(RandomFloats(random, tokens * cols), tokens, cols);
      const auto source = RandomGgufMatrix(random, format, 2 * gates, cols);
      ExactBytes packed(PackedMatrixBytes(format, 2 * gates, cols));
      PackMatrixRows(format, 2 * gates, cols, source.data(), packed.data());
      std::vector<float> products(tokens * 2 * gates);
      OwnedActivations plain(tokens, gates), fast(tokens, gates);
      MatMulArgs args;
      args.x = x.view();
      args.weight = {format, 2 * gates, cols, packed.data()};
      args.out = products.data();
      args.out_stride = 2 * gates;
      args.tokens = tokens;
      PlainKernels().gated_matmul(args, plain.view(), 0, gates, 0, tokens);
      const int64_t row_cut = random() % (gates / 32 + 1) * 32;
      const int64_t token_cut = random() % (tokens + 1);
      const CpuKernels& kernels = KernelsFor(GetParam());
      for (const auto& [row, row_end] : {std::pair{int64_t{0}, row_cut}, {row_cut, gates}}) {
        kernels.gated_matmul(args, fast.view(), row, row_end, 0, token_cut);
        kernels.gated_matmul(args, fast.view(), row, row_end, token_cut, tokens);
      }
      SCOPED_TRACE(absl::StrCat(std::string(WeightFormatName(format)), " gates ", gates, " cols ",
                                cols, " tokens ", tokens, " cut ", row_cut, " ", token_cut));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(plain.f32, fast.f32, "f32"));
      ASSERT_EQ(plain.q8, fast.q8);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(plain.scale, fast.scale, "scale"));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(plain.scaled_sum, fast.scaled_sum, "scaled sum"));
    }
  }
}

TEST_P(FastMatMul, FloatWeightsMayHaveAnyNumberOfColumns) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kFloatFormats) {
    for (int64_t cols : {1, 3, 31, 33, 70}) {
      const int64_t tokens = 1 + static_cast<int64_t>(random() % 12);
      OwnedActivations x(tokens, cols);
      x.f32 = RandomFloats(random, tokens * cols);
      ASSERT_NO_FATAL_FAILURE(
          ExpectPlainProduct(random, GetParam(), {format, 37, cols, tokens}, x));
    }
  }
}

// Uses every weight and activation byte, including −128, which rows with a NaN can contain. Integer
// sums are exact for all bytes.
TEST_P(FastMatMul, IntegerSumsAreExactAtTheExtremesOfTheirTypes) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kQuantizedFormats) {
    for (int value : {-128, -127, 127, 0}) {
      for (int64_t tokens : {1, 2, 3, 4, 5, 8}) {
        const Shape shape = {format, 33, WholeBlocks(format, 64), tokens};
        OwnedActivations x(tokens, shape.cols);
        for (auto& scale : x.scale) scale = 1;
        for (auto& sum : x.scaled_sum) sum = 1;
        for (auto& q : x.q8) q = static_cast<int8_t>(random() % 16 == 0 ? random() : value);
        ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random, GetParam(), shape, x));
      }
    }
  }
}

TEST_P(FastMatMul, AllWeightBytesAtTheirLowestAgainstAllActivationsAtTheirs) {
  for (WeightFormat format : kQuantizedFormats) {
    for (int weight_byte : {0x80, 0x7f, 0xff, 0x00}) {
      const int64_t cols = WholeBlocks(format, 64);
      const int64_t tokens = 3;
      ExactBytes packed(PackedMatrixBytes(format, 16, cols));
      std::memset(packed.data(), weight_byte, PackedMatrixBytes(format, 16, cols));
      const uint16_t one = F32ToF16(1.0f);
      const BlockLayout layout = BlockLayoutOf(format);
      for (int64_t block = 0; block < RowGroupBytes(format, cols); block += layout.bytes()) {
        for (int64_t i = 0; i < 16 * layout.headers; ++i) {
          std::memcpy(packed.data() + block + 2 * i, &one, 2);
        }
      }
      OwnedActivations x(tokens, cols);
      for (auto& scale : x.scale) scale = 1;
      for (auto& q : x.q8) q = -128;
      std::vector<float> plain(tokens * 16);
      std::vector<float> fast(tokens * 16);
      MatMulArgs args;
      args.x = x.view();
      args.weight = {format, 16, cols, packed.data()};
      args.out_stride = 16;
      args.tokens = tokens;
      args.out = plain.data();
      PlainKernels().matmul(args, 0, 16, 0, tokens);
      args.out = fast.data();
      KernelsFor(GetParam()).matmul(args, 0, 16, 0, tokens);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(plain, fast, absl::StrCat(weight_byte)));
    }
  }
}

TEST_P(FastMatMul, EqualsPlainForExtremeInfiniteAndNanActivations) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kAllWeightFormats) {
    const Shape shape = {format, 50, WholeBlocks(format, 96), 9};
    auto values = ExtremeFloats(random, shape.tokens * shape.cols);
    values[5] = std::numeric_limits<float>::infinity();
    values[3 * shape.cols + 40] = std::numeric_limits<float>::quiet_NaN();
    values[4 * shape.cols + 40] = -std::numeric_limits<float>::infinity();
    auto x = QuantizedActivations(values, shape.tokens, shape.cols);
    ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random, GetParam(), shape, x));
  }
}

// Long rows change the number of tokens per block. The longest rows do not use the vector code.
TEST_P(FastMatMul, EqualsPlainForLongRows) {
  std::mt19937_64 random(TestSeed());
  for (WeightFormat format : kQuantizedFormats) {
    for (int64_t longer : {16384, 131072, 524288, 524288 + 32}) {
      if (kThreadSanitizer && longer > 16384) break;
      const int64_t cols = WholeBlocks(format, longer);
      const Shape shape = {format, 17, cols, longer <= 16384 ? 21 : 3};
      auto x = QuantizedActivations(RandomFloats(random, shape.tokens * cols), shape.tokens, cols);
      ASSERT_NO_FATAL_FAILURE(ExpectPlainProduct(random, GetParam(), shape, x));
    }
  }
}

}  // namespace
}  // namespace baton
