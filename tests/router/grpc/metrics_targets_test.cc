#include "router/grpc/metrics_targets.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

TEST(MetricsTargets, HaveTheFormOfHttpSd) {
  const nlohmann::json out = nlohmann::json::parse(MetricsTargetsToJson(
      "r:1", {{.address = "p:2", .worker_id = "prefill-0", .role = v1::WORKER_ROLE_PREFILL},
              {.address = "b:3", .worker_id = "both-0", .role = v1::WORKER_ROLE_BOTH}}));
  const nlohmann::json wanted = {
      {{"targets", {"r:1"}}, {"labels", {{"baton_role", "router"}}}},
      {{"targets", {"p:2"}},
       {"labels", {{"baton_role", "prefill"}, {"baton_worker", "prefill-0"}}}},
      {{"targets", {"b:3"}}, {"labels", {{"baton_role", "both"}, {"baton_worker", "both-0"}}}}};
  EXPECT_EQ(out, wanted);
}

TEST(MetricsTargets, NamesOfWorkersCannotBreakTheJson) {
  const std::string name = "a\"\n<script>\xff";
  const nlohmann::json out = nlohmann::json::parse(MetricsTargetsToJson(
      "r:1", {{.address = "p:2", .worker_id = name, .role = v1::WORKER_ROLE_DECODE}}));
  EXPECT_EQ(out[1]["labels"]["baton_worker"], "a\"\n<script>\uFFFD");
}

}  // namespace
}  // namespace baton
