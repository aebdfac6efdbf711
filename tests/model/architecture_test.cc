#include "model/architecture.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_communicator.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/model/model_files.h"
#include "tests/model/toy_architecture.h"

namespace baton {
namespace {

TEST(Architecture, HasNoTensorParallelismUnlessItSaysSo) {
  const ToyArchitecture toy;
  const auto file = *GgufFile::Open(TinyModelPath("f32"));
  const auto device = *CreateCpuDevice({.threads = 1, .asynchronous = true});
  const auto communicators = CreateCpuCommunicators(2);
  EXPECT_EQ(toy.LoadRank(*file, *device, *communicators[0]).status(),
            absl::UnimplementedError("tensor-parallel is 2; the architecture toy supports only 1"));
}

}  // namespace
}  // namespace baton
