#include "kernels/cuda/cuda_launch.h"

#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kMostGrid[3] = {0x7fffffff, 65535, 65535};
constexpr int64_t kMostBlock[3] = {1024, 1024, 64};
constexpr int64_t kMostThreadsOfBlock = 1024;

absl::Status CheckSize(std::string_view kernel, std::string_view what, int i, int64_t size,
                       int64_t most) {
  if (size >= 1 && size <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("kernel ", kernel, ": ", what, "[", i, "] is ", size, ", it must be in 1 to ", most));
}

}  // namespace

absl::Status CheckLaunch(std::string_view kernel, const LaunchShape& shape) {
  absl::Status status;
  for (int i = 0; i < 3; ++i) {
    status.Update(CheckSize(kernel, "grid", i, shape.grid[i], kMostGrid[i]));
    status.Update(CheckSize(kernel, "block", i, shape.block[i], kMostBlock[i]));
  }
  const int64_t threads = int64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (status.ok() && threads > kMostThreadsOfBlock) {
    status = absl::InvalidArgumentError(StrCat("kernel ", kernel, ": a thread block has ", threads,
                                               " threads, the limit is ", kMostThreadsOfBlock));
  }
  return status;
}

}  // namespace baton
