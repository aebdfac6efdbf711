// How CudaOps uses streams (row limits and captures), and how it chooses kernels by numerics. The
// kernels have their own tests, and
// tests/e2e/cuda_emulated_test.py runs all ops together.
#include "kernels/cuda/cuda_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/create_device.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/half.h"
#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FixedLimit final : public RowLimit {
 public:
  explicit FixedLimit(int64_t rows) : rows_(rows) {}
  int64_t Rows() override {
    ++questions;
    return rows_;
  }
  int questions = 0;

 private:
  const int64_t rows_;
};

class CudaOpsTest : public testing::Test {
 protected:
  // Copies rows 2, 1, 0 of `from` [3, 4] to rows 0, 1, 2 of `to`.
  void GatherReversed() {
    device_->ops().GatherRows(*stream_, {.x = from_->as<float>(),
                                         .indices = indices_->as<int32_t>(),
                                         .out = to_->as<float>(),
                                         .rows = 3,
                                         .cols = 4});
  }
  // First value of each row of `to`.
  std::vector<float> Rows() {
    const std::vector<float> all = FromDevice<float>(*stream_, to_->data(), 12);
    return {all[0], all[4], all[8]};
  }
  int64_t launches() const { return EmulatorLibrary().counters().launches; }

  const std::unique_ptr<Device> device_ = CreateEmulatedDevice();
  const std::unique_ptr<Stream> stream_ = device_->CreateStream();
  const std::unique_ptr<DeviceBuffer> from_ =
      ToDevice<float>(*device_, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  const std::unique_ptr<DeviceBuffer> to_ = ToDevice<float>(*device_, std::vector<float>(12));
  const std::unique_ptr<DeviceBuffer> indices_ = ToDevice<int32_t>(*device_, {2, 1, 0});
};

TEST_F(CudaOpsTest, WithoutALimitAllRowsAreComputed) {
  GatherReversed();
  EXPECT_THAT(Rows(), ElementsAre(3, 2, 1));
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

TEST_F(CudaOpsTest, TheLimitIsAskedWhenTheOpIsEnqueued) {
  FixedLimit limit(2);
  stream_->LimitRows(&limit);
  GatherReversed();
  EXPECT_EQ(limit.questions, 1);
  stream_->LimitRows(nullptr);
  EXPECT_THAT(Rows(), ElementsAre(3, 2, 0));
}

TEST_F(CudaOpsTest, NoRowsLaunchNothing) {
  FixedLimit limit(0);
  stream_->LimitRows(&limit);
  GatherReversed();
  EXPECT_THAT(Rows(), ElementsAre(0, 0, 0));
  EXPECT_EQ(launches(), 0);
}

TEST_F(CudaOpsTest, CapturedOpsHaveNoLimit) {
  FixedLimit limit(1);
  stream_->LimitRows(&limit);
  stream_->BeginCapture();
  GatherReversed();
  const auto graph = stream_->EndCapture();
  EXPECT_EQ(limit.questions, 0);
  stream_->Launch(*graph);
  EXPECT_THAT(Rows(), ElementsAre(3, 2, 1));
}

// The packed layout is the kernels' own, so only the product shows that both fit.
TEST_F(CudaOpsTest, AMatrixPackedOnTheHostMultipliesAsOnTheCpu) {
  constexpr int64_t kRows = 19, kCols = 40, kTokens = 3;
  std::vector<float> matrix(kRows * kCols);
  std::vector<float> x(kTokens * kCols);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i % 23) - 11.5f;
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 17) - 1.0f;
  const auto multiply = [&](Device& device, const std::byte* weight, float* x, float* out,
                            Stream& stream) {
    device.ops().MatMul(
        stream,
        {.x = Activations{.f32 = x},
         .weight = {.format = WeightFormat::kF32, .rows = kRows, .cols = kCols, .data = weight},
         .out = out,
         .out_stride = kRows,
         .tokens = kTokens});
  };
  const auto pack = [&](Device& device) {
    std::vector<std::byte> packed(device.ops().PackedBytes(WeightFormat::kF32, kRows, kCols));
    device.ops().PackMatrix(WeightFormat::kF32, kRows, kCols,
                            reinterpret_cast<const std::byte*>(matrix.data()), packed.data());
    return packed;
  };
  const auto cpu = *CreateDevice({.threads = 1});
  const auto cpu_weight = *cpu->Allocate(pack(*cpu).size(), "test");
  std::ranges::copy(pack(*cpu), cpu_weight->data());
  std::vector<float> wanted(kTokens * kRows);
  multiply(*cpu, cpu_weight->data(), x.data(), wanted.data(), *cpu->CreateStream());

  const auto weight = ToDevice(*device_, pack(*device_));
  const auto input = ToDevice(*device_, x);
  const auto output = ToDevice(*device_, std::vector<float>(kTokens * kRows));
  multiply(*device_, weight->data(), input->as<float>(), output->as<float>(), *stream_);
  EXPECT_EQ(FromDevice<float>(*stream_, output->data(), kTokens * kRows), wanted);
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

// Cut to 32 bits, the first of these sizes would be one row.
TEST(CudaOps, SizesThatNoGridCanHaveAreErrors) {
  const auto message = [](RotaryTableArgs args) {
    const auto device = CreateEmulatedDevice();
    device->ops().RotaryTable(*device->CreateStream(), args);
    return std::string(device->Health().message());
  };
  EXPECT_THAT(message({.tokens = (int64_t{1} << 32) + 1, .half = 1}),
              HasSubstr("kernel baton_rotary_table: grid[0] is 4294967297"));
  EXPECT_THAT(message({.tokens = 1, .half = int64_t{65536} * 128}),
              HasSubstr("kernel baton_rotary_table: grid[1] is 65536, it must be in 1 to 65535"));
}

// Multiplies one BF16 matrix on a device: its product, then its gated product.
std::vector<float> ProductsOn(Device& device, int64_t tokens) {
  constexpr int64_t kRows = 32, kCols = 40;
  std::vector<uint16_t> matrix(kRows * kCols);
  std::vector<float> x(tokens * kCols);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = F32ToBF16(0.37f * static_cast<float>(i % 23) - 4.1f);
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.123f * static_cast<float>(i % 17) - 1.0f;
  std::vector<std::byte> packed(device.ops().PackedBytes(WeightFormat::kBF16, kRows, kCols));
  device.ops().PackMatrix(WeightFormat::kBF16, kRows, kCols,
                          reinterpret_cast<const std::byte*>(matrix.data()), packed.data());
  const auto weight = ToDevice(device, packed);
  const auto input = ToDevice(device, x);
  const auto output = ToDevice(device, std::vector<float>(tokens * kRows));
  const auto gated = ToDevice(device, std::vector<float>(tokens * kRows / 2));
  const auto stream = device.CreateStream();
  MatMulArgs args = {.x = Activations{.f32 = input->as<float>()},
                     .weight = {WeightFormat::kBF16, kRows, kCols, weight->data()},
                     .out = output->as<float>(),
                     .out_stride = kRows,
                     .tokens = tokens};
  device.ops().MatMul(*stream, args);
  std::vector<float> result = FromDevice<float>(*stream, output->data(), tokens * kRows);
  device.ops().GatedMatMul(*stream, {args, Activations{.f32 = gated->as<float>()}});
  const auto columns = FromDevice<float>(*stream, gated->data(), tokens * kRows / 2);
  result.insert(result.end(), columns.begin(), columns.end());
  EXPECT_TRUE(device.Health().ok()) << device.Health();
  return result;
}

TEST(CudaOpsNumerics, ProductsAreThoseOfTheDevicesNumerics) {
  for (const int64_t tokens : {3, 12}) {
    std::vector<std::vector<float>> results;
    for (const int compute_capability : {80, 90}) {
      const auto gpu = CreateEmulatedDevice(gpu_emulator::SettingsOfCapability(compute_capability));
      const auto cpu =
          *CreateDevice({.threads = 1, .numerics = std::string(NumericsName(gpu->numerics()))});
      results.push_back(ProductsOn(*gpu, tokens));
      EXPECT_EQ(results.back(), ProductsOn(*cpu, tokens)) << NumericsName(gpu->numerics());
    }
    EXPECT_NE(results[0], results[1]);
  }
}

}  // namespace
}  // namespace baton
