#include "cache/index/reserved_memory.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ReservedMemory, IsZeroUntilWrittenAndAgainAfterDiscard) {
  ReservedMemory memory(size_t{64} << 30);  // far more than the test touches
  uint64_t* const far = memory.words() + (size_t{63} << 27);
  EXPECT_EQ(LoadWord(far), 0u);
  StoreWord(far, 7);
  EXPECT_EQ(LoadWord(far), 7u);
  memory.Discard();
  EXPECT_EQ(LoadWord(far), 0u);
}

TEST(ReservedMemory, PopulateChangesNothing) {
  ReservedMemory memory(10'000);
  memory.words()[1000] = 7;
  memory.Populate(1, 9'999);
  memory.Populate(9'000, 1 << 20);  // does not touch memory after the end
  memory.Populate(5'000, 4'000);
  EXPECT_EQ(memory.words()[1000], 7u);
  EXPECT_EQ(memory.words()[0], 0u);
}

}  // namespace
}  // namespace baton
