// cp.async: when its copies land, and what they write.
#include "tests/gpu_emulator/async_copy.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::Executor;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr unsigned kNothingYet = 0x7fff7fff;  // fresh shared memory

struct CopyParams {
  unsigned* source;  // [16], aligned
  unsigned* seen;
  int shift;  // bytes added to the target
};

void CopiesThreeGroups(const CopyParams p) {
  auto* shared = SharedMemory<unsigned>();
  const auto note = [&](int moment) {
    for (int i = 0; i < 4; ++i) p.seen[moment * 4 + i] = shared[i * 4];
  };
  CopyAsync16(reinterpret_cast<char*>(shared) + p.shift, p.source, true);
  CommitCopies();
  CopyAsync16(shared + 4, p.source + 4, true);
  CommitCopies();
  CopyAsync16(shared + 8, p.source + 8, false);
  CopyAsync16(shared + 12, p.source + 12, true);
  CommitCopies();
  note(0);
  WaitCopies<2>();
  note(1);
  WaitCopies<1>();
  note(2);
  p.source[12] = 99;  // a copy may read its source until the wait
  WaitCopies<0>();
  note(3);
}

std::vector<unsigned> SeenWith(CopyLanding landing, uint64_t seed = 1) {
  alignas(16) unsigned source[16];
  std::iota(source, source + 16, 1u);
  std::vector<unsigned> seen(16);
  Executor executor({.landing = landing, .seed = seed});
  EXPECT_TRUE(RunAsKernel<&CopiesThreeGroups>(executor, {{1, 1, 1}, {1, 1, 1}, 64},
                                              CopyParams{source, seen.data(), 0})
                  .ok());
  return seen;
}

TEST(AsyncCopy, LateCopiesLandGroupByGroupInTheWait) {
  const unsigned n = kNothingYet;
  EXPECT_THAT(SeenWith(CopyLanding::kLate),
              ElementsAre(n, n, n, n, 1, n, n, n, 1, 5, n, n, 1, 5, 0, 99));
}

TEST(AsyncCopy, EarlyCopiesLandWhenIssued) {
  EXPECT_THAT(SeenWith(CopyLanding::kEarly),
              ElementsAre(1, 5, 0, 13, 1, 5, 0, 13, 1, 5, 0, 13, 1, 5, 0, 13));
}

TEST(AsyncCopy, SeededCopiesLandAtEitherMomentAndReplayFromTheSeed) {
  bool differs = false;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    EXPECT_EQ(SeenWith(CopyLanding::kSeeded, seed), SeenWith(CopyLanding::kSeeded, seed));
    differs |= SeenWith(CopyLanding::kSeeded, seed) != SeenWith(CopyLanding::kSeeded, seed + 1);
  }
  EXPECT_TRUE(differs);
}

TEST(AsyncCopy, AddressesThatTheHardwareRefusesAreErrors) {
  alignas(16) unsigned source[20] = {};
  std::vector<unsigned> seen(16);
  Executor executor;
  const auto message = [&](unsigned* from, int shift) {
    return std::string(RunAsKernel<&CopiesThreeGroups>(executor, {{1, 1, 1}, {1, 1, 1}, 64},
                                                       CopyParams{from, seen.data(), shift})
                           .message());
  };
  EXPECT_THAT(message(source, 4), HasSubstr("the shared address is no multiple of 16"));
  EXPECT_THAT(message(source, 64), HasSubstr("the address is not in shared memory"));
  EXPECT_THAT(message(source + 1, 0), HasSubstr("from an address that is no multiple of 16"));
}

void CopiesFromOtherMemory(const CopyParams p) {
  alignas(16) unsigned on_stack[4] = {1, 2, 3, 4};
  auto* shared = SharedMemory<unsigned>();
  CopyAsync16(shared, p.shift == 0 ? on_stack : p.shift == 1 ? shared + 4 : p.source, true);
}

TEST(AsyncCopy, ASourceOutsideGlobalMemoryIsAnError) {
  alignas(16) unsigned source[4] = {};
  Executor executor;
  const auto message = [&](int from) {
    return std::string(RunAsKernel<&CopiesFromOtherMemory>(executor, {{1, 1, 1}, {1, 1, 1}, 64},
                                                           CopyParams{source, nullptr, from})
                           .message());
  };
  EXPECT_THAT(message(0), HasSubstr("CopyAsync16: the address is not in global memory"));
  EXPECT_THAT(message(1), HasSubstr("CopyAsync16: the address is not in global memory"));
  EXPECT_EQ(message(2), "");
}

}  // namespace
}  // namespace baton
