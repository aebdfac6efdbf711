#include "model/tensor_parallel_weights.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kernels/cpu/cpu_communicator.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/model/divisible_model.h"
#include "tests/model/tiny_model.h"

namespace baton {
namespace {

TEST(TensorParallelWeights, RanksShareTheWeights) {
  const std::string bytes = DivisibleModelBytes(GgmlType::kF32);
  const auto file = *ParseGguf(bytes);
  const auto device = *CreateCpuDevice({.threads = 1, .asynchronous = true});
  const auto communicators = CreateCpuCommunicators(4);
  const Architecture& llama = **FindArchitecture(*file);
  const size_t whole = (*llama.Load(*file, *device))->bytes();
  const size_t table = 320 * 192 * sizeof(float);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto weights = *llama.LoadRank(*file, *device, *communicators[rank]);
    const size_t own = rank == 0 ? table : 0;  // only rank 0 has the embedding table
    // The norms are whole, and padding of rows is small.
    EXPECT_NEAR(static_cast<double>(weights->bytes() - own), static_cast<double>(whole) / 4,
                static_cast<double>(whole) / 20);
    EXPECT_NEAR(weights->cost().layers.f32, (*llama.Load(*file, *device))->cost().layers.f32 / 4,
                1);
  }
}

TEST(TensorParallelWeights, ADegreeThatDoesNotDivideTheHeadsIsRefused) {
  const TinyModel model("q4_1", 1);
  for (const int32_t degree : {3, 4}) {
    DeviceGroup group = *CreateDeviceGroup({.threads = 1}, degree);
    const auto device = std::move(group.devices.front());
    group.devices.erase(group.devices.begin());
    const auto weights =
        LoadTensorParallel(**FindArchitecture(*model.file), *model.file, *device, std::move(group));
    EXPECT_EQ(weights.status(),
              absl::InvalidArgumentError("tensor-parallel is " + std::to_string(degree) +
                                         "; it must divide the model's 2 KV heads"));
  }
}

}  // namespace
}  // namespace baton
