// The list of a worker's cached prompt chunks, as people and scripts see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#ifdef BATON_GRPC
#include "cli/chunk_table_client.h"
#endif

namespace baton {
namespace {
#ifdef BATON_GRPC

using ::testing::HasSubstr;
using ::testing::Not;

v1::ListChunksResponse ListOfOneChunk() {
  v1::ListChunksResponse list;
  list.set_worker_id("decode-0");
  list.set_bytes_per_block(512 << 10);
  list.mutable_cache()->set_used_blocks(3);
  list.mutable_cache()->set_budget_blocks(30);
  v1::CachedChunk& chunk = *list.add_chunks();
  chunk.set_key("000000000000000100000000000000ab");
  chunk.set_tokens(40);
  chunk.set_blocks(3);
  chunk.set_position(7);
  chunk.set_references(2);
  chunk.set_uses(int64_t{5} << 40);
  chunk.set_age_ms(61'250);
  chunk.set_idle_ms(1'500);
  return list;
}

TEST(ChunkTable, HasARowForEachChunkAndTheTotals) {
  const std::string table = ChunkTable(ListOfOneChunk());
  EXPECT_THAT(table, HasSubstr("000000000000000100000000000000ab      40       3         7     2 "
                               "5497558138880       61.2        1.5  device\n"));
  EXPECT_THAT(table, HasSubstr("\n1 chunks in 3 of 30 blocks (1.5 of 15.0 MiB)\n"));
  EXPECT_THAT(table, Not(HasSubstr("sleep")));
  EXPECT_THAT(ChunkTable({}), HasSubstr("\n0 chunks in 0 of 0 blocks"));
}

TEST(ChunkTable, ASleepingChunkIsInTheHostTier) {
  v1::ListChunksResponse list = ListOfOneChunk();
  list.mutable_cache()->set_sleeping_limit_bytes(64 << 20);
  EXPECT_THAT(ChunkTable(list), HasSubstr("\nsleeping in host memory: 0 (0.0 of 64.0 MiB)\n"));
  v1::CachedChunk& chunk = *list.mutable_chunks(0);
  chunk.set_blocks(0);
  chunk.set_host_bytes(3 << 19);
  const std::string table = ChunkTable(list);
  EXPECT_THAT(table, HasSubstr("       1.5    host\n"));
  EXPECT_THAT(table, HasSubstr("\n0 chunks in 3 of 30 blocks"));
  EXPECT_THAT(table, HasSubstr("\nsleeping in host memory: 1 (1.5 of 64.0 MiB)\n"));
  const nlohmann::json json = nlohmann::json::parse(ChunksAsJson(list));
  EXPECT_EQ(json["sleeping_limit_bytes"], 64 << 20);
  EXPECT_EQ(json["chunks"][0]["tier"], "host");
  EXPECT_EQ(json["chunks"][0]["host_bytes"], 3 << 19);
}

TEST(ChunkTable, TextFromAWorkerCannotControlTheTerminal) {
  v1::ListChunksResponse list = ListOfOneChunk();
  list.mutable_chunks(0)->set_key("\033[2J");
  EXPECT_EQ(ChunkTable(list).find('\033'), std::string::npos);
}

TEST(ChunkTable, JsonHasNumbersAsNumbersOnOneLine) {
  const std::string line = ChunksAsJson(ListOfOneChunk());
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["worker"], "decode-0");
  EXPECT_EQ(json["budget_blocks"], 30);
  EXPECT_EQ(json["used_blocks"], 3);
  EXPECT_EQ(json["bytes_per_block"], 512 << 10);
  EXPECT_EQ(json["chunks"], nlohmann::json::array({{{"key", "000000000000000100000000000000ab"},
                                                    {"tokens", 40},
                                                    {"blocks", 3},
                                                    {"position", 7},
                                                    {"references", 2},
                                                    {"uses", int64_t{5} << 40},
                                                    {"age_ms", 61'250},
                                                    {"idle_ms", 1'500},
                                                    {"tier", "device"},
                                                    {"host_bytes", 0}}}));
}

#endif
}  // namespace
}  // namespace baton
