#include "router/grpc/status_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace baton {
namespace {

nlohmann::json Read(const StatusPageInput& input) {
  return nlohmann::json::parse(StatusPageToJson(input));
}

TEST(StatusJson, AnEmptyRouterHasEverythingThatThePageReads) {
  const v1::GetStatusResponse status;
  const nlohmann::json out = Read({.status = &status});
  EXPECT_FALSE(out.at("ready"));
  EXPECT_EQ(out.at("model"), "");
  EXPECT_EQ(out.at("requests").at("active"), 0);
  EXPECT_EQ(out.at("workers_total"), 0);
  EXPECT_TRUE(out.at("workers").empty());
  EXPECT_TRUE(out.at("recent").is_array());
  EXPECT_TRUE(out.at("tree").is_array());
  EXPECT_EQ(out.at("index").at("units"), 0);
}

TEST(StatusJson, AWorkerHasItsPoolItsHitsAndItsState) {
  v1::GetStatusResponse status;
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("d");
  worker.set_role(v1::WORKER_ROLE_DECODE);
  worker.set_waiting(3);
  worker.mutable_pool()->set_total_blocks(100);
  worker.mutable_pool()->set_owned_blocks(7);
  worker.mutable_pool()->set_hit_tokens(11);
  worker.mutable_pool()->mutable_chunk_cache()->set_sleeping_entries(5);
  v1::WorkerStatus& silent = *status.add_workers();
  silent.set_worker_id("s");
  silent.set_draining(true);
  silent.set_silent(true);
  status.add_leaving_workers()->set_worker_id("l");
  v1::IndexedWorkerStatus& indexed = *status.mutable_index()->add_workers();
  indexed.set_worker_id("d");
  indexed.set_units(42);
  indexed.set_followed(true);
  const nlohmann::json out = Read({.status = &status});
  EXPECT_EQ(out.at("workers_total"), 3);
  const nlohmann::json& shown = out.at("workers")[0];
  EXPECT_EQ(shown.at("role"), "decode");
  EXPECT_EQ(shown.at("state"), "usable");
  EXPECT_EQ(shown.at("waiting"), 3);
  EXPECT_EQ(shown.at("pool").at("total"), 100);
  EXPECT_EQ(shown.at("pool").at("owned"), 7);
  EXPECT_EQ(shown.at("hits").at("hit_tokens"), 11);
  EXPECT_EQ(shown.at("chunks").at("sleeping"), 5);
  EXPECT_EQ(shown.at("index_units"), 42);
  EXPECT_TRUE(shown.at("followed"));
  EXPECT_EQ(out.at("workers")[1].at("state"), "silent");
  EXPECT_FALSE(out.at("workers")[1].at("followed"));
  EXPECT_EQ(out.at("workers")[2].at("state"), "leaving");
}

TEST(StatusJson, TextOfOthersStaysText) {
  const std::string hostile = "</script><script>alert(1)</script>\"\\\n\xff";
  v1::GetStatusResponse status;
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("</script><script>alert(1)</script>\"\\\n");
  worker.set_address(worker.worker_id());
  worker.set_conservation_error(worker.worker_id());
  RecentRequest request;
  request.id = hostile;
  request.decode_worker = hostile;
  const std::string text =
      StatusPageToJson({.status = &status, .model = hostile, .waiting = 0, .recent = {request}});
  EXPECT_EQ(text.find('<'), std::string::npos);
  const nlohmann::json out = nlohmann::json::parse(text);
  EXPECT_EQ(out.at("workers")[0].at("id"), worker.worker_id());
  EXPECT_EQ(out.at("recent")[0].at("id"), "</script><script>alert(1)</script>\"\\\n\uFFFD");
}

TEST(StatusJson, ARequestHasTheWaterfallOfItsLedger) {
  const v1::GetStatusResponse status;
  RecentRequest request;
  request.id = "req-1";
  request.endpoint = Endpoint::kChatCompletions;
  request.code = absl::StatusCode::kCancelled;
  request.ended_us = 5'000'000;
  request.prefill_us = 300;
  request.first_token_us = 1000;
  request.total_us = 9000;
  RecentRequest without_token;
  without_token.total_us = 9000;
  const nlohmann::json out = Read({.status = &status,
                                   .model = "",
                                   .waiting = 0,
                                   .recent = {request, without_token},
                                   .tree = {},
                                   .now_us = 7'000'000});
  const nlohmann::json& shown = out.at("recent")[0];
  EXPECT_EQ(shown.at("endpoint"), "chat_completions");
  EXPECT_EQ(shown.at("code"), "cancelled");
  EXPECT_EQ(shown.at("age_ms"), 2000);
  EXPECT_EQ(shown.at("parts").at("prefill_us"), 300);
  EXPECT_EQ(shown.at("parts").at("decode_us"), 8000);
  EXPECT_EQ(out.at("recent")[1].at("parts").at("decode_us"), 0);
}

TEST(StatusJson, ShowsTheTreeAndAtMostSoManyWorkers) {
  v1::GetStatusResponse status;
  for (int i = 0; i < kMostShownWorkers + 50; ++i) {
    status.add_workers()->set_worker_id(std::to_string(i));
  }
  PrefixNode child = {.hash = 2, .units = 1, .prompts = 1, .workers = 0};
  PrefixNode root = {.hash = 0xab, .units = 3, .prompts = 2, .workers = 1, .children = {child}};
  const nlohmann::json out =
      Read({.status = &status, .model = "", .waiting = 0, .recent = {}, .tree = {root}});
  EXPECT_EQ(out.at("workers").size(), static_cast<size_t>(kMostShownWorkers));
  EXPECT_EQ(out.at("workers_total"), kMostShownWorkers + 50);
  EXPECT_EQ(out.at("tree")[0].at("hash"), "00000000000000ab");
  EXPECT_EQ(out.at("tree")[0].at("workers"), 1);
  EXPECT_EQ(out.at("tree")[0].at("children")[0].at("units"), 1);
}

}  // namespace
}  // namespace baton
