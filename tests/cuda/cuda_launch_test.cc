#include "kernels/cuda/cuda_launch.h"

#include <gtest/gtest.h>

#include <utility>

namespace baton {
namespace {

TEST(CheckLaunch, AcceptsEveryShapeWithinCudasLimits) {
  for (const LaunchShape& shape :
       {LaunchShape{}, LaunchShape{.grid = {0x7fffffff, 65535, 65535}, .block = {1024, 1, 1}},
        LaunchShape{.block = {1, 1024, 1}}, LaunchShape{.block = {16, 1, 64}}}) {
    EXPECT_TRUE(CheckLaunch("k", shape).ok()) << CheckLaunch("k", shape);
  }
}

TEST(CheckLaunch, NamesTheKernelTheSizeAndTheLimit) {
  constexpr int64_t kPast32Bits = (int64_t{1} << 32) + 7;
  const std::pair<LaunchShape, const char*> cases[] = {
      {{.grid = {kPast32Bits, 1, 1}}, "grid[0] is 4294967303, it must be in 1 to 2147483647"},
      {{.grid = {1, 65536, 1}}, "grid[1] is 65536, it must be in 1 to 65535"},
      {{.grid = {1, 1, 65536}}, "grid[2] is 65536, it must be in 1 to 65535"},
      {{.grid = {-1, 1, 1}}, "grid[0] is -1, it must be in 1 to 2147483647"},
      {{.block = {1025, 1, 1}}, "block[0] is 1025, it must be in 1 to 1024"},
      {{.block = {1, 0, 1}}, "block[1] is 0, it must be in 1 to 1024"},
      {{.block = {1, 1, 65}}, "block[2] is 65, it must be in 1 to 64"},
      {{.block = {64, 32, 1}}, "a thread block has 2048 threads, the limit is 1024"}};
  for (const auto& [shape, message] : cases) {
    const absl::Status status = CheckLaunch("baton_rope", shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), std::string("kernel baton_rope: ") + message);
  }
}

}  // namespace
}  // namespace baton
