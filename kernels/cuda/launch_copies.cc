#include "kernels/cuda/launch_copies.h"

#include <algorithm>
#include <span>

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

}  // namespace

void LaunchCopyList(KernelLauncher& launcher, const CopyRunsArgs& args) {
  CopyListParams params{};
  params.from = args.from;
  params.to = args.to;
  const int64_t most_blocks =
      args.staging ? kPcieBlocks : kCopyBlocksPerMultiprocessor * launcher.multiprocessors();
  for (std::span<const ByteRun> rest = args.runs; !rest.empty();) {
    const size_t count = std::min<size_t>(rest.size(), kListedRuns);
    std::copy_n(rest.begin(), count, params.runs);
    rest = rest.subspan(count);
    params.count = static_cast<int64_t>(count);
    launcher.Launch("baton_copy_list",
                    {.grid = {std::min(params.count * kCopySlices, most_blocks), 1, 1},
                     .block = {kCopyThreads, 1, 1}},
                    &params, sizeof(params));
  }
}

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

void LaunchCopyRuns(KernelLauncher& launcher, const std::byte* from, std::byte* to,
                    const ByteRun* runs, int64_t count, uint32_t* checksums) {
  if (count == 0) return;
  CopyRunsParams params{};
  params.from = from;
  params.to = to;
  params.runs = runs;
  params.count = count;
  params.powers[0] = crc32c_folding::PowerOfX(8);
  for (int i = 1; i < kCrcPowers; ++i) params.powers[i] = SquareOf(params.powers[i - 1]);
  if (checksums != nullptr) {
    std::byte* const workspace = launcher.Workspace(
        "checksum parts", static_cast<size_t>(count * kCopySlices) * sizeof(uint32_t));
    if (workspace == nullptr) return;
    params.parts = reinterpret_cast<uint32_t*>(workspace);
  }
  const int64_t blocks =
      std::min(count * kCopySlices, kCopyBlocksPerMultiprocessor * launcher.multiprocessors());
  LaunchShape shape{.grid = {blocks, 1, 1}, .block = {kCopyThreads, 1, 1}};
  if (checksums == nullptr) {
    launcher.Launch("baton_copy_runs", shape, &params, sizeof(params));
    return;
  }
  shape.shared_bytes = kChecksumSharedBytes;
  launcher.Launch("baton_copy_runs_with_checksums", shape, &params, sizeof(params));
  const JoinChecksumsParams join{params.parts, checksums, count};
  shape.shared_bytes = 0;
  shape.grid[0] = BlocksFor(count, kCopyThreads);
  launcher.Launch("baton_join_checksums", shape, &join, sizeof(join));
}

}  // namespace baton
