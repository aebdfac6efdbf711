#include "bench/read_bandwidth.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

TEST(ReadBandwidth, TheSmallestSetHasAFiniteRateOnEveryInstructionSetAndThreadCount) {
  for (const InstructionSet set : {InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!IsSupported(set)) continue;
    for (const int threads : {1, 2, 3}) {
      const auto device = CreateCpuDevice({threads, set});
      ASSERT_TRUE(device.ok()) << device.status();
      for (const double bytes : {1.0, 4096.0, 100'000.0}) {
        ReadBandwidth bandwidth(**device, set, threads, bytes);
        const double rate = bandwidth.BytesPerSecond();
        EXPECT_TRUE(std::isfinite(rate)) << bytes << " bytes, " << threads << " threads";
        EXPECT_GT(rate, 0);
        EXPECT_GE(bandwidth.BytesPerSecond(), rate);
      }
    }
  }
}

}  // namespace
}  // namespace baton
