#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#ifdef BATON_GRPC
#include "cli/status_table_client.h"
#endif

namespace baton {
namespace {
#ifdef BATON_GRPC

using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse OneWorker() {
  v1::GetStatusResponse status;
  status.set_ready(true);
  status.set_routing_policy("kv-aware");
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("decode-0");
  worker.set_role(v1::WORKER_ROLE_DECODE);
  worker.set_address("127.0.0.1:9000");
  worker.set_context_length(8192);
  worker.mutable_pool()->set_block_size(16);
  worker.mutable_pool()->set_limit_blocks(100);
  worker.mutable_pool()->set_reserved_blocks(100);
  return status;
}

std::vector<std::string> Lines(const v1::GetStatusResponse& status, bool index = false) {
  return absl::StrSplit(StatusTable(status, index), '\n');
}

// Returns the cell of the worker's row below `title`.
std::string Cell(const v1::GetStatusResponse& status, const std::string& title) {
  const std::vector<std::string> lines = Lines(status);
  const std::vector<std::string> titles = absl::StrSplit(lines[1], ' ', absl::SkipEmpty());
  const std::vector<std::string> cells = absl::StrSplit(lines[2], ' ', absl::SkipEmpty());
  for (size_t i = 0; i < titles.size(); ++i) {
    if (titles[i] == title) return cells.at(i);
  }
  return "no column " + title;
}

TEST(StatusTable, ShowsTheWishOfTheRolePlannerWithItsReason) {
  v1::GetStatusResponse status = OneWorker();
  EXPECT_THAT(StatusTable(status, false), Not(HasSubstr("roles ("))) << "it is off";
  v1::RolePlan& plan = *status.mutable_role_plan();
  plan.set_mode("advise");
  plan.set_reason("3 of 16 requests have finished on warm workers");
  EXPECT_THAT(StatusTable(status, false),
              HasSubstr("\nroles (advise): 3 of 16 requests have finished on warm workers\n"));
  plan.set_known(true);
  plan.set_prefill_workers(1);
  plan.set_decode_workers(3);
  plan.set_wanted_prefill_workers(2);
  plan.set_reason("prompts wait");
  plan.set_next("decode-1 prefills");
  plan.set_trouble("decode-1 prefills: not carried out: why");
  plan.set_flips(4);
  plan.set_last_flip("decode-2 decodes");
  plan.set_last_flip_ms(12'345);
  EXPECT_THAT(
      StatusTable(status, false),
      HasSubstr(
          "\nroles (advise): the plan wants 2 prefill and 2 decode workers, there are 1 and 3: "
          "prompts wait\n  next: decode-1 prefills\n  last of 4: decode-2 decodes, "
          "12 s ago\n  decode-1 prefills: not carried out: why\n"));
}

TEST(StatusTable, HasNoPlanForWorkersOfBothRoles) {
  v1::GetStatusResponse status = OneWorker();
  v1::RolePlan& plan = *status.mutable_role_plan();
  plan.set_mode("apply");
  plan.set_known(true);
  plan.set_reason("with 0 prefill and 0 decode workers");
  plan.set_trouble("decode-1 prefills: not carried out: why");
  EXPECT_THAT(StatusTable(status, false),
              HasSubstr("\nroles (apply): all usable workers have both roles\n  decode-1 prefills: "
                        "not carried out: why\n"));
}

TEST(StatusTable, ShowsTheWorstState) {
  v1::GetStatusResponse status = OneWorker();
  v1::WorkerStatus& worker = *status.mutable_workers(0);
  EXPECT_EQ(Cell(status, "state"), "serving");
  worker.set_draining(true);
  EXPECT_EQ(Cell(status, "state"), "draining");
  worker.set_conservation_error("one block too many");
  EXPECT_EQ(Cell(status, "state"), "damaged");
  EXPECT_THAT(StatusTable(status, false), HasSubstr("\n  one block too many\n"));
  worker.set_silent(true);
  EXPECT_EQ(Cell(status, "state"), "silent");
  worker.set_unreachable(true);
  EXPECT_EQ(Cell(status, "state"), "unreachable");
}

TEST(StatusTable, ShowsKvThatPassedHostMemory) {
  v1::GetStatusResponse status = OneWorker();
  EXPECT_THAT(StatusTable(status, false), Not(HasSubstr("host memory")));
  status.mutable_workers(0)->set_kv_bytes_through_host(4096);
  EXPECT_THAT(StatusTable(status, false),
              HasSubstr("\n  transfers: 4096 bytes of KV copied between GPU and host memory\n"));
  status.mutable_workers(0)->set_kv_bytes_through_host(int64_t{3000} << 20);
  EXPECT_THAT(StatusTable(status, false), HasSubstr("\n  transfers: 3000 MiB of KV copied "));
}

TEST(StatusTable, AWorkerThatHasLeftAndDrainsIsShown) {
  v1::GetStatusResponse status = OneWorker();
  status.mutable_leaving_workers()->Swap(status.mutable_workers());
  status.mutable_leaving_workers(0)->set_draining(true);
  EXPECT_EQ(Cell(status, "worker"), "decode-0");
  EXPECT_EQ(Cell(status, "state"), "draining");
}

TEST(StatusTable, WorkersAreOrderedByName) {
  v1::GetStatusResponse status = OneWorker();
  for (const char* name : {"prefill-0", "a"}) status.add_workers()->set_worker_id(name);
  std::string names;
  for (const std::string& line : Lines(status)) names += line.substr(0, line.find(' ')) + " ";
  EXPECT_THAT(names, HasSubstr("worker a decode-0 prefill-0 "));
}

TEST(StatusTable, ShowsUptimeAndRatesIfTheWorkerReportsThem) {
  v1::GetStatusResponse status = OneWorker();
  for (const char* column : {"uptime", "prompt/s", "answer/s"}) {
    EXPECT_EQ(Cell(status, column), "-") << column;
  }
  v1::WorkerStatus& worker = *status.mutable_workers(0);
  worker.set_prefill_tokens_per_second(1234.5f);
  worker.set_decode_tokens_per_second(2.25f);
  constexpr int64_t kSecond = 1000;
  for (const auto& [ms, text] : {std::pair<int64_t, const char*>{59 * kSecond, "59s"},
                                 {(60 + 5) * kSecond, "1m05s"},
                                 {(2 * 3600 + 7 * 60) * kSecond, "2h07m"},
                                 {(24 * 3600 * 3 + 3600) * kSecond, "3d01h"}}) {
    worker.set_uptime_ms(ms);
    EXPECT_EQ(Cell(status, "uptime"), text);
  }
  EXPECT_EQ(Cell(status, "prompt/s"), "1234");
  EXPECT_EQ(Cell(status, "answer/s"), "2.2");
}

TEST(StatusTable, TheRoomIsTheSmallerOfPoolAndContext) {
  v1::GetStatusResponse status = OneWorker();
  EXPECT_EQ(Cell(status, "room"), "1600");
  status.mutable_workers(0)->set_context_length(512);
  EXPECT_EQ(Cell(status, "room"), "512");
}

TEST(StatusTable, TheCacheOfChunksHasALineAfterItsFirstLookup) {
  v1::GetStatusResponse status = OneWorker();
  v1::ChunkCacheStatus& chunks = *status.mutable_workers(0)->mutable_pool()->mutable_chunk_cache();
  chunks.set_budget_blocks(40);
  EXPECT_THAT(StatusTable(status, false), Not(HasSubstr("prompt chunks")));
  chunks.set_used_blocks(12);
  chunks.set_entries(3);
  chunks.set_lookups(10);
  chunks.set_hits(6);
  chunks.set_misses(4);
  chunks.set_bypasses(1);
  chunks.set_evictions(2);
  EXPECT_THAT(StatusTable(status, false),
              HasSubstr("\n  prompt chunks: 3 entries in 12 of 40 blocks, 10 lookups, 6 hits, 4 "
                        "misses, 1 bypassed, 2 evicted\n"));
}

TEST(StatusTable, SleepingChunksHaveALineIfChunksMaySleep) {
  v1::GetStatusResponse status = OneWorker();
  v1::ChunkCacheStatus& chunks = *status.mutable_workers(0)->mutable_pool()->mutable_chunk_cache();
  chunks.set_sleeps(9);
  EXPECT_THAT(StatusTable(status, false), Not(HasSubstr("sleeping chunks")));
  chunks.set_sleeping_limit_bytes(64 << 20);
  chunks.set_sleeping_entries(3);
  chunks.set_sleeping_bytes(1 << 19);
  chunks.set_wakes(5);
  chunks.set_damaged(1);
  chunks.set_sleepers_dropped(2);
  EXPECT_THAT(
      StatusTable(status, false),
      HasSubstr("\n  sleeping chunks: 3 in 0.5 of 64.0 MiB of host memory, 9 slept, 5 woken, "
                "1 damaged, 2 dropped\n"));
}

TEST(StatusTable, TheIndexIsShownOnRequest) {
  v1::GetStatusResponse status = OneWorker();
  v1::IndexedWorkerStatus& worker = *status.mutable_index()->add_workers();
  worker.set_worker_id("decode-0");
  worker.set_units(77);
  worker.set_trouble("no \x1b answer");
  EXPECT_THAT(StatusTable(status, false), Not(HasSubstr("index")));
  EXPECT_THAT(StatusTable(status, true), HasSubstr("index: "));
  EXPECT_THAT(StatusTable(status, true), HasSubstr("\n  no \\x1b answer\n"));
  EXPECT_EQ(Lines(status, true).size(), Lines(status).size() + 4);
}

TEST(StatusTable, TextFromWorkersCannotControlTheTerminal) {
  v1::GetStatusResponse status = OneWorker();
  status.mutable_workers(0)->set_worker_id("evil\x1b[2J");
  status.add_refused_workers()->set_reason("\x1b]0;title\x07");
  EXPECT_THAT(StatusTable(status, true), Not(HasSubstr("\x1b")));
}

TEST(StatusTable, TheHelpExplainsEveryColumn) {
  const std::vector<std::string> lines = Lines(OneWorker());
  const std::string help = kStatusColumnsHelp;
  for (const std::string& title :
       std::vector<std::string>(absl::StrSplit(lines[1], ' ', absl::SkipEmpty()))) {
    if (title == "worker" || title == "role" || title == "address") continue;
    EXPECT_THAT(help, HasSubstr(title));
  }
}

TEST(StatusTable, EachTenantHasARowWithItsLimits) {
  v1::GetStatusResponse status;
  EXPECT_THAT(TenantRows(status), HasSubstr("--tenants"));
  v1::TenantStatus& tenant = *status.add_tenants();
  tenant.set_tenant("acme\n");
  tenant.set_running(3);
  tenant.set_waiting(2);
  tenant.set_tokens(12345);
  tenant.set_weight(2.5);
  tenant.set_requests_per_minute(600);
  tenant.set_max_priority(-1);
  tenant.set_kv_share(0.375);
  const std::string rows = TenantRows(status);
  const std::vector<std::string> lines = absl::StrSplit(rows, '\n');
  ASSERT_EQ(lines.size(), 3u) << rows;
  for (const char* text : {"12345", "2.5", "600", "<= -1", "-", "0.375"}) {
    EXPECT_THAT(lines[1], HasSubstr(text));
  }
  EXPECT_EQ(lines[0].size(), lines[1].size()) << rows;
}

#endif  // BATON_GRPC
}  // namespace
}  // namespace baton
