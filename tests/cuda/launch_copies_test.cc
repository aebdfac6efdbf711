// Copies of runs on the emulator: every byte in its place, no other byte changed, and the checksums
// of common/crc32c.h.
#include "kernels/cuda/launch_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "common/crc32c.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/kernels/sparse_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 16032;

std::vector<std::byte> RandomBytes(std::mt19937_64& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Runs of every kind of length, in shuffled order of their targets.
std::vector<ByteRun> RandomRuns(std::mt19937_64& random, bool aligned) {
  std::vector<ByteRun> runs;
  for (const int64_t bytes : {0, 1, 15, 16, 17, 4095, 4096, 4097, 40000, 36864, 70001}) {
    runs.push_back({.bytes = bytes});
  }
  const auto place = [&](int64_t ByteRun::*at) {
    std::shuffle(runs.begin(), runs.end(), random);
    int64_t next = aligned ? 16 : 5;
    for (ByteRun& run : runs) {
      run.*at = next;
      next += run.bytes + 1 + static_cast<int64_t>(random() % 30);
      if (aligned) next = (next + 15) / 16 * 16;
    }
  };
  place(&ByteRun::from);
  place(&ByteRun::to);
  return runs;
}

TEST(CudaCopies, RunsArriveWithTheirChecksums) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  for (const bool aligned : {true, false}) {
    for (const bool checks : {true, false}) {
      SCOPED_TRACE(testing::Message() << "aligned " << aligned << " checksums " << checks);
      const std::vector<ByteRun> runs = RandomRuns(random, aligned);
      const std::vector<std::byte> from = RandomBytes(random, 200000);
      std::vector<std::byte> to(200000, std::byte{0x77});
      std::vector<std::byte> expected = to;
      std::vector<uint32_t> checksums(runs.size() + 1, 5);
      for (const ByteRun& run : runs) {
        std::copy_n(from.begin() + run.from, run.bytes, expected.begin() + run.to);
      }
      LaunchCopyList(launcher, {.from = from.data(),
                                .to = to.data(),
                                .runs = runs,
                                .checksums = checks ? checksums.data() : nullptr});
      EXPECT_TRUE(to == expected);
      EXPECT_EQ(checksums.back(), 5u);
      for (size_t i = 0; checks && i < runs.size(); ++i) {
        const auto bytes = std::span(from).subspan(runs[i].from, runs[i].bytes);
        EXPECT_EQ(checksums[i], Crc32c(bytes)) << "run " << i << " of " << runs[i].bytes;
      }
    }
  }
}

// Units of 16, 4 and 1 bytes, rows shorter and longer than a block has threads, and one row.
TEST(CudaCopies, RowsArrive) {
  std::mt19937_64 random(kSeed + 4);
  ChosenLauncher launcher;
  for (const int64_t unit : {16, 4, 1}) {
    SCOPED_TRACE(testing::Message() << "units of " << unit);
    std::vector<ByteRows> runs;
    int64_t from_end = 0, to_end = 0;
    for (int i = 0; i < kListedRowRuns + 9; ++i) {
      const int64_t columns = i == 5 ? 1100 : 1 + static_cast<int64_t>(random() % 40);
      ByteRows run{.from = from_end, .to = to_end, .bytes = unit * columns};
      run.rows = i == 7 ? 0 : i == 9 ? 1 : 1 + static_cast<int64_t>(random() % 20);
      run.from_stride = run.bytes + unit * static_cast<int64_t>(random() % 3);
      run.to_stride = run.bytes + unit * static_cast<int64_t>(random() % 3);
      from_end += run.rows * run.from_stride + unit;
      to_end += run.rows * run.to_stride + unit;
      runs.push_back(run);
    }
    runs.push_back({.from = 3 * unit, .to = to_end, .bytes = 0, .rows = 5});
    const std::vector<std::byte> from = RandomBytes(random, static_cast<size_t>(from_end));
    std::vector<std::byte> to(static_cast<size_t>(to_end), std::byte{0x77});
    std::vector<std::byte> expected = to;
    for (const ByteRows& run : runs) {
      for (int64_t row = 0; row < run.rows; ++row) {
        std::copy_n(from.begin() + run.from + row * run.from_stride, run.bytes,
                    expected.begin() + run.to + row * run.to_stride);
      }
    }
    LaunchCopyRows(launcher, {.from = from.data(), .to = to.data(), .runs = runs});
    EXPECT_TRUE(to == expected);
  }
}

// Places beyond 2^31 bytes: of runs, and of rows whose run begins near.
TEST(CudaCopies, FarRunsAndRowsArrive) {
  if (!ChosenDeviceName().empty()) {
    GTEST_SKIP() << "not run: memory outside the heap has no copy on the device";
  }
  std::mt19937_64 random(kSeed + 5);
  ChosenLauncher launcher;
  constexpr int64_t kApart = (int64_t{1} << 30) + 16, kRows = 5, kBytes = 64;
  Sparse<std::byte> from(kRows * kApart), to(kRows * kApart);
  ASSERT_TRUE(from.ok() && to.ok());
  std::vector<std::vector<std::byte>> rows;
  std::vector<ByteRun> runs;
  for (int64_t row = 0; row < kRows; ++row) {
    rows.push_back(RandomBytes(random, kBytes));
    from.Put(row * kApart, rows.back());
    runs.push_back({.from = row * kApart, .to = (kRows - 1 - row) * kApart, .bytes = kBytes});
  }
  const ByteRows all = {.from = 0,
                        .to = 1024,
                        .bytes = kBytes,
                        .rows = kRows - 1,
                        .from_stride = kApart,
                        .to_stride = kApart};
  std::vector<uint32_t> checksums(kRows);
  const auto expect_runs = [&] {
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(to.Get(runs[row].to, kBytes), rows[row]) << row;
      to.Put(runs[row].to, std::vector<std::byte>(kBytes));
    }
  };
  LaunchCopyList(launcher, {.from = from.data(), .to = to.data(), .runs = runs});
  expect_runs();
  LaunchCopyList(
      launcher,
      {.from = from.data(), .to = to.data(), .runs = runs, .checksums = checksums.data()});
  expect_runs();
  LaunchCopySmallRuns(launcher, {.from = from.data(), .to = to.data(), .runs = runs});
  expect_runs();
  LaunchCopyRows(launcher, {.from = from.data(), .to = to.data(), .runs = {&all, 1}});
  for (int64_t row = 0; row < all.rows; ++row) {
    EXPECT_EQ(checksums[row], Crc32c(rows[row])) << row;
    EXPECT_EQ(to.Get(all.to + row * kApart, kBytes), rows[row]) << row;
  }
}

TEST(CudaCopies, AListOfAnyLengthArrives) {
  std::mt19937_64 random(kSeed + 2);
  ChosenLauncher launcher;
  for (const int64_t count :
       {1, kCheckedRuns, kCheckedRuns + 1, kListedRuns, kListedRuns + 1, 3 * kListedRuns + 7}) {
    for (const bool staging : {false, true}) {
      SCOPED_TRACE(testing::Message() << count << " runs, staging " << staging);
      std::vector<ByteRun> runs;
      int64_t next = 3;
      for (int64_t i = 0; i < count; ++i) {
        runs.push_back({.to = next, .bytes = static_cast<int64_t>(random() % 50)});
        next += runs.back().bytes + static_cast<int64_t>(random() % 3);
      }
      std::shuffle(runs.begin(), runs.end(), random);
      for (ByteRun& run : runs) run.from = static_cast<int64_t>(random() % 1000);
      const std::vector<std::byte> from = RandomBytes(random, 1100);
      std::vector<std::byte> to(static_cast<size_t>(next) + 9, std::byte{0x77});
      std::vector<std::byte> expected = to;
      for (const ByteRun& run : runs) {
        std::copy_n(from.begin() + run.from, run.bytes, expected.begin() + run.to);
      }
      LaunchCopyList(launcher,
                     {.from = from.data(), .to = to.data(), .runs = runs, .staging = staging});
      EXPECT_TRUE(to == expected);
      if (count > kListedRuns) continue;  // checksums take their time
      std::vector<uint32_t> checksums(runs.size());
      std::ranges::fill(to, std::byte{0x77});
      LaunchCopyList(launcher, {.from = from.data(),
                                .to = to.data(),
                                .runs = runs,
                                .staging = staging,
                                .checksums = checksums.data()});
      EXPECT_TRUE(to == expected);
      for (size_t i = 0; i < runs.size(); ++i) {
        EXPECT_EQ(checksums[i], Crc32c(std::span(from).subspan(runs[i].from, runs[i].bytes)));
      }
    }
  }
  LaunchCopyList(launcher, {});
}

// Runs of all alignments and sizes, more than fit into a launch.
TEST(CudaCopies, SmallRunsArrive) {
  ChosenLauncher launcher;
  std::mt19937_64 random(kSeed + 9);
  for (const size_t count : {size_t{1}, size_t{kSmallRuns}, size_t{kSmallRuns + 3}}) {
    std::vector<std::byte> from(count * 400), to(count * 400, std::byte{7});
    for (std::byte& value : from) value = static_cast<std::byte>(random());
    std::vector<std::byte> expected = to;
    std::vector<ByteRun> runs;
    for (size_t i = 0; i < count; ++i) {
      const int64_t alignment = i % 3 == 0 ? 16 : i % 3 == 1 ? 4 : 1;
      const auto begin = static_cast<int64_t>(400 * i);
      const auto any = [&](int64_t most) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
      };
      const ByteRun run = {.from = begin + any(100) / alignment * alignment,
                           .to = begin + any(100) / alignment * alignment,
                           .bytes = any(300)};
      runs.push_back(run);
      std::copy_n(from.begin() + run.from, run.bytes, expected.begin() + run.to);
    }
    LaunchCopySmallRuns(launcher, {.from = from.data(), .to = to.data(), .runs = runs});
    EXPECT_EQ(to, expected) << count << " runs";
  }
}

// Copy on write: the leading slots of blocks, inside one pool.
TEST(CudaCopies, BlocksOfAPoolAreCopiedInOneLaunch) {
  std::mt19937_64 random(kSeed + 1);
  ChosenLauncher launcher;
  std::vector<std::byte> pool = RandomBytes(random, 8 * 4096);
  std::vector<std::byte> expected = pool;
  const std::vector<ByteRun> runs = {
      {0, 4096, 4096}, {2 * 4096, 5 * 4096, 48}, {4096 * 7, 4096 * 3, 1}};
  for (const ByteRun& run : runs) {
    std::memcpy(expected.data() + run.to, pool.data() + run.from, run.bytes);
  }
  LaunchCopyList(launcher, {.from = pool.data(), .to = pool.data(), .runs = runs});
  EXPECT_TRUE(pool == expected);
}

}  // namespace
}  // namespace baton
