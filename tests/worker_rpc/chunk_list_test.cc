#include "worker_rpc/chunk_list.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ChunkList, HasEveryFigureOfAnEntryAndOfTheCache) {
  EngineStatus status;
  status.bytes_per_block = 4096;
  status.chunk_cache.budget_blocks = 30;
  status.chunk_cache.used_blocks = 4;
  const ChunkCache::EntryInfo entries[] = {
      {.key = {.cache_namespace = CacheNamespace(1), .hash = {.low = 0xab, .high = 0x1}},
       .tokens = 40,
       .blocks = 3,
       .position = 7,
       .references = 2,
       .uses = int64_t{5} << 40,
       .age_us = 61'000'999,
       .idle_us = 1'500},
      {.key = {}, .tokens = 9, .blocks = 0, .tier = CacheTier::kHost, .host_bytes = 777}};
  const v1::ListChunksResponse list = ChunksToWire("decode-0", entries, status);
  EXPECT_EQ(list.worker_id(), "decode-0");
  EXPECT_EQ(list.bytes_per_block(), 4096);
  EXPECT_EQ(list.cache().budget_blocks(), 30);
  EXPECT_EQ(list.cache().used_blocks(), 4);
  ASSERT_EQ(list.chunks_size(), 2);
  const v1::CachedChunk& first = list.chunks(0);
  EXPECT_EQ(first.key(), "000000000000000100000000000000ab");
  EXPECT_EQ(first.tokens(), 40);
  EXPECT_EQ(first.blocks(), 3);
  EXPECT_EQ(first.position(), 7);
  EXPECT_EQ(first.references(), 2);
  EXPECT_EQ(first.uses(), int64_t{5} << 40);
  EXPECT_EQ(first.age_ms(), 61'000);
  EXPECT_EQ(first.idle_ms(), 1);
  EXPECT_EQ(first.host_bytes(), 0);
  EXPECT_EQ(list.chunks(1).tokens(), 9);
  EXPECT_EQ(list.chunks(1).host_bytes(), 777);
}

}  // namespace
}  // namespace baton
