#include "model/block_table_mirror.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/model/immediate_stream.h"

namespace baton {
namespace {

std::vector<BlockId> Table(std::initializer_list<int32_t> ids) {
  std::vector<BlockId> table;
  for (const int32_t id : ids) table.push_back(BlockId(id));
  return table;
}

struct Fixture {
  Fixture(int32_t rows, int64_t stride)
      : device(rows * stride, 0),
        memory(8 * rows * stride * sizeof(int32_t)),
        slot(memory),
        mirror(device.data(), rows, stride, BlockId(77)) {}
  void Upload() {
    slot.Clear();
    InputCopies copies;
    mirror.Upload(copies, slot);
    copies.EnqueueEach(stream);
  }
  ImmediateStream stream;
  std::vector<int32_t> device;
  std::vector<std::byte> memory;
  StagingSlot slot;
  BlockTableMirror mirror;
};

TEST(BlockTableMirror, UploadsOnlyChangedEntries) {
  Fixture f(2, 4);
  f.mirror.SetRow(0, Table({7, 8}));
  f.Upload();
  EXPECT_EQ(f.device, (std::vector<int32_t>{7, 8, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(f.mirror.uploads(), 1);
  EXPECT_EQ(f.mirror.uploaded_entries(), 2);
  f.mirror.SetRow(0, Table({7, 8, 9}));
  f.Upload();
  EXPECT_EQ(f.device[2], 9);
  EXPECT_EQ(f.mirror.uploads(), 2);
  EXPECT_EQ(f.mirror.uploaded_entries(), 3);
  f.mirror.SetRow(0, Table({7, 8, 9}));
  f.Upload();
  EXPECT_EQ(f.mirror.uploads(), 2);
}

TEST(BlockTableMirror, TheScratchBlockStandsWhereATableHasNoBlock) {
  Fixture f(1, 4);
  f.mirror.SetRow(0, Table({5, 6, 7}));
  f.Upload();
  const std::vector<BlockId> slid = {kNoBlock, BlockId(6), BlockId(7), kNoBlock};
  f.mirror.SetRow(0, slid);
  f.Upload();
  EXPECT_EQ(f.device, (std::vector<int32_t>{77, 6, 7, 77}));
  const int64_t uploads = f.mirror.uploads();
  f.mirror.SetRow(0, slid);
  f.Upload();
  EXPECT_EQ(f.mirror.uploads(), uploads);
}

TEST(BlockTableMirror, AShorterTableLeavesTheEntriesBehindItUnchanged) {
  Fixture f(1, 4);
  f.mirror.SetRow(0, Table({1, 2, 3}));
  f.mirror.SetRow(0, Table({1}));
  f.Upload();
  EXPECT_EQ(f.device, (std::vector<int32_t>{1, 2, 3, 0}));
}

TEST(BlockTableMirror, NearChangesTravelTogetherFarOnesAlone) {
  Fixture f(1, 1000);
  std::vector<BlockId> table(1000, BlockId(0));
  table[0] = table[50] = BlockId(5);  // with 49 entries between
  table[500] = BlockId(6);
  f.mirror.SetRow(0, table);
  f.Upload();
  EXPECT_EQ(f.mirror.uploads(), 2);
  EXPECT_EQ(f.mirror.uploaded_entries(), 51 + 1);
  EXPECT_EQ(f.device[50], 5);
  EXPECT_EQ(f.device[500], 6);
}

TEST(BlockTableMirror, RowsSideBySideAreOneCopy) {
  Fixture f(4, 8);
  for (int32_t row = 0; row < 4; ++row) f.mirror.SetRow(row, Table({row + 1, row + 2}));
  f.Upload();
  EXPECT_EQ(f.mirror.uploads(), 1);
  for (int32_t row = 0; row < 4; ++row) EXPECT_EQ(f.device[row * 8 + 1], row + 2);
}

TEST(BlockTableMirror, TheDeviceAlwaysHasTheSetValues) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr int32_t kRows = 5;
    constexpr int64_t kStride = 200;
    Fixture f(kRows, kStride);
    std::vector<std::vector<BlockId>> tables(kRows);
    for (int step = 0; step < 30; ++step) {
      for (int change = 0; change < 4; ++change) {  // rows change in random order
        auto& table = tables[random() % kRows];
        table.resize(random() % (kStride + 1), BlockId(static_cast<int32_t>(random() % 9)));
        if (!table.empty()) table[random() % table.size()] = BlockId(random() % 100);
        f.mirror.SetRow(static_cast<int32_t>(&table - tables.data()), table);
      }
      f.Upload();
      for (int32_t row = 0; row < kRows; ++row) {
        for (size_t i = 0; i < tables[row].size(); ++i) {
          ASSERT_EQ(f.device[row * kStride + i], tables[row][i].value());
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
