#include "cli/inspection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace baton
