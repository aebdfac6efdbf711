#include "kernels/cuda/launch_copies.h"

#include <algorithm>
#include <iterator>

#include "common/crc32c_folding.h"
#include "kernels/cuda/kernel_shapes.h"

namespace baton {
namespace {

constexpr int64_t kCopyBlocksPerMultiprocessor = 8;
// Sixteen blocks have 64 KiB in flight for each unrolled step, enough to keep PCIe busy.
constexpr int64_t kPcieBlocks = 16;

// A slice of rows lasts a few steps of its block.
constexpr int64_t kSliceBytes = 4 * kCopyStep;
constexpr int64_t kMostRowSlices = 1024;

constexpr uint32_t SquareOf(uint32_t a) {
  uint32_t product = 0;
  for (uint32_t b = a, rest = a; rest != 0; rest <<= 1) {
    if ((rest & 0x80000000u) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? 0x82F63B78 : 0);
  }
  return product;
}

// The kernel of a list without checksums.
void Launch(KernelLauncher& launcher, LaunchShape shape, CopyListParams& params,
            const CopyRunsArgs&) {
  launcher.Launch("baton_copy_list", shape, &params, sizeof(params));
}

// The kernels of a list with checksums, which begins at `args.runs`.
void Launch(KernelLauncher& launcher, LaunchShape shape, CheckedListParams& params,
            const CopyRunsArgs& args) {
  std::byte* const workspace =
      launcher.Workspace("checksum parts", size_t{kCheckedRuns} * kCopySlices * sizeof(uint32_t));
  if (workspace == nullptr) return;
  params.parts = reinterpret_cast<uint32_t*>(workspace);
  shape.shared_bytes = kChecksumSharedBytes;
  launcher.Launch("baton_copy_list_with_checksums", shape, &params, sizeof(params));
  const JoinChecksumsParams join{params.parts, args.checksums, params.count};
  launcher.Launch(
      "baton_join_checksums",
      {.grid = {BlocksFor(params.count, kCopyThreads), 1, 1}, .block = {kCopyThreads, 1, 1}}, &join,
      sizeof(join));
}

// Copies the runs of `args`, as many in a launch as `params` has room for.
template <typename Params>
void LaunchLists(KernelLauncher& launcher, Params& params, CopyRunsArgs args) {
  params.from = args.from;
  params.to = args.to;
  const int64_t most_blocks =
      args.staging ? kPcieBlocks : kCopyBlocksPerMultiprocessor * launcher.multiprocessors();
  while (!args.runs.empty()) {
    const size_t count = std::min(args.runs.size(), std::size(params.runs));
    std::copy_n(args.runs.begin(), count, params.runs);
    params.count = static_cast<int64_t>(count);
    Launch(launcher,
           {.grid = {std::min(params.count * kCopySlices, most_blocks), 1, 1},
            .block = {kCopyThreads, 1, 1}},
           params, args);
    args.runs = args.runs.subspan(count);
    if (args.checksums != nullptr) args.checksums += count;
  }
}

}  // namespace

void LaunchCopyRows(KernelLauncher& launcher, const CopyRowsArgs& args) {
  CopyRowsParams params{};
  params.from = args.from;
  params.to = args.to;
  const int64_t most_blocks =
      args.staging ? kPcieBlocks : kCopyBlocksPerMultiprocessor * launcher.multiprocessors();
  const auto launch = [&] {
    int64_t most = 1;
    for (int64_t i = 0; i < params.count; ++i) {
      most = std::max(most, params.runs[i].rows * params.runs[i].bytes);
    }
    params.slices = std::clamp<int64_t>(BlocksFor(most, kSliceBytes), 1, kMostRowSlices);
    launcher.Launch("baton_copy_rows",
                    {.grid = {std::min(params.count * params.slices, most_blocks), 1, 1},
                     .block = {kCopyThreads, 1, 1}},
                    &params, sizeof(params));
    params.count = 0;
  };
  for (const ByteRows& run : args.runs) {
    if (run.rows == 0 || run.bytes == 0) continue;
    params.runs[params.count++] = run;
    if (params.count == kListedRowRuns) launch();
  }
  if (params.count > 0) launch();
}

void LaunchCopySmallRuns(KernelLauncher& launcher, const CopyRunsArgs& args) {
  SmallRunsParams params{};
  params.from = args.from;
  params.to = args.to;
  for (size_t begin = 0; begin < args.runs.size(); begin += kSmallRuns) {
    const auto runs =
        args.runs.subspan(begin).first(std::min<size_t>(kSmallRuns, args.runs.size() - begin));
    std::copy(runs.begin(), runs.end(), params.runs);
    launcher.Launch(
        "baton_copy_small_runs",
        {.grid = {static_cast<int64_t>(runs.size()), 1, 1}, .block = {kCopyThreads, 1, 1}}, &params,
        sizeof(params));
  }
}

void LaunchCopyList(KernelLauncher& launcher, const CopyRunsArgs& args) {
  if (args.checksums == nullptr) {
    CopyListParams params{};
    return LaunchLists(launcher, params, args);
  }
  CheckedListParams params{};
  params.powers[0] = crc32c_folding::PowerOfX(8);
  for (int i = 1; i < kCrcPowers; ++i) params.powers[i] = SquareOf(params.powers[i - 1]);
  LaunchLists(launcher, params, args);
}

}  // namespace baton
