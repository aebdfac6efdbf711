#include "cli/ledger_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LedgerTable, ChunksHaveALineIfThereAreSome) {
  JobResult result;
  result.ledger = {{"total_us", 5000},         {"chunks", 8},
                   {"chunk_hits", 6},          {"chunk_repaired_tokens", 0},
                   {"chunk_pulled_bytes", 0},  {"chunk_lookup_us", 80},
                   {"chunk_compute_us", 2100}, {"chunk_place_us", 40},
                   {"chunk_repair_us", 0},     {"chunk_wake_us", 0}};
  EXPECT_THAT(
      LedgerTable(result),
      HasSubstr("  8 prompt chunks, 6 cached; lookup 80 us, compute 2.10 ms, place 40 us\n"));
}

TEST(LedgerTable, AChunksLineNamesRepairPullsAndWaking) {
  JobResult result;
  result.ledger = {{"chunks", 1},
                   {"chunk_hits", 1},
                   {"chunk_pulled_bytes", 2048},
                   {"chunk_repaired_tokens", 16},
                   {"chunk_repair_us", 7},
                   {"chunk_wake_us", 9}};
  EXPECT_THAT(LedgerTable(result),
              HasSubstr("  1 prompt chunk, 1 cached, 16 tokens repaired, 2.0 KiB pulled; repair 7 "
                        "us, wake 9 us\n"));
}

TEST(LedgerTable, AnOrdinaryRequestHasNoLineOfChunks) {
  JobResult result;
  result.ledger = {{"total_us", 5000}, {"chunks", 0}, {"chunk_hits", 0}};
  EXPECT_THAT(LedgerTable(result), Not(HasSubstr("prompt chunk")));
}

}  // namespace
}  // namespace baton
