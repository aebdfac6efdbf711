#include "cli/inspection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(InspectionTable, SaysHowWellTheCacheDoes) {
  EngineInspection inspection;
  inspection.status.pool = {.before = 100, .limit = 100, .reserved = 160, .retiring = 5};
  inspection.cache_depth = 3;
  KvCacheStats& cache = inspection.status.cache;
  cache.lookups = 8;
  cache.hits = 2;
  cache.lookup_tokens = 1000;
  cache.hit_tokens = 125;
  cache.evicted_blocks = 7;
  cache.evicted_tokens = 112;
  cache.radix_nodes = 4;
  const std::string table = InspectionTable(inspection);
  EXPECT_THAT(table, HasSubstr("8 lookups, 2 hits (25.0 %), 125 of 1000 tokens reused (12.5 %)"));
  EXPECT_THAT(table, HasSubstr("7 blocks with 112 tokens evicted; 4 nodes, 3 deep"));
  EXPECT_THAT(table, HasSubstr("limit 100 blocks, 160 reserved, 5 retiring, 55 retired"));
}

TEST(InspectionTable, ShowsEveryWindowAndItsTables) {
  EngineInspection inspection;
  inspection.status.groups = {{.layers = 1},
                              {.kind = KvGroupKind::kSlidingWindow,
                               .window = 24,
                               .layers = 3,
                               .bytes_per_block = 512,
                               .size = {.before = 9, .limit = 9, .reserved = 20, .retiring = 1},
                               .blocks = {.total = 10, .free = 4, .owned = 3, .cached = 2},
                               .evictable = 2,
                               .evicted_blocks = 6}};
  inspection.sequences = {{.sequence_id = 7,
                           .request_id = "r",
                           .phase = "running",
                           .blocks = {5, 6, 7, 8, 9},
                           .window_blocks = {{-1, -1, 3, 1, -1}}}};
  inspection.trace = {{.time_us = 0,
                       .kind = AllocationEvent::Kind::kRelease,
                       .sequence = SequenceId(7),
                       .tokens = 54,
                       .blocks = 1,
                       .free_after = 4,
                       .group = 1}};
  const std::string table = InspectionTable(inspection);
  EXPECT_THAT(table, HasSubstr("      54        1        4  group 1\n"));
  EXPECT_THAT(table, HasSubstr("group 1: window of 24 tokens, 3 layers: 10 blocks of 512 bytes: "
                               "4 free (0 never used), 2 cached (2 evictable), 3 owned"));
  EXPECT_THAT(table, HasSubstr("limit 9, 20 reserved, 1 retiring; 6 evicted"));
  EXPECT_THAT(table, HasSubstr("blocks [5 6 7 8 9]\n  group 1: blocks [-x2 3 1 -x1]\n"));
  EXPECT_THAT(table, Not(HasSubstr("group 0")));
}

}  // namespace
}  // namespace baton
