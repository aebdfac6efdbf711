#include "cli/fleet_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(FleetPlan, TheRouterWaitsForAsManyWorkersAsThereWillBe) {
  const FleetOptions options = {.prefill_workers = 2,
                                .decode_workers = 3,
                                .router_address = "127.0.0.1:0",
                                .router_arguments = {"--pin-model=m"}};
  const FleetMember router = PlannedRouter(options, "/bin");
  EXPECT_EQ(router.name, "router");
  EXPECT_THAT(router.arguments,
              ElementsAre("/bin/baton-router", "--listen=127.0.0.1:0", "--min-prefill-workers=2",
                          "--min-decode-workers=3", "--pin-model=m"));
}

TEST(FleetPlan, TheRouterServesHttpOnlyIfAsked) {
  FleetOptions options = {.router_address = ""};
  EXPECT_THAT(PlannedRouter(options, "").arguments, Not(Contains(StartsWith("--http-listen"))));
  options.http_address = "127.0.0.1:8000";
  EXPECT_THAT(PlannedRouter(options, "").arguments, Contains("--http-listen=127.0.0.1:8000"));
}

TEST(FleetPlan, EachProcessGetsTheCertificateOfItsRole) {
  const FleetOptions options = {.router_address = "",
                                .http_address = "127.0.0.1:8000",
                                .tls_directory = "certs",
                                .api_keys = "keys"};
  const std::vector<std::string> router = PlannedRouter(options, "").arguments;
  EXPECT_THAT(router, Contains("--tls-cert=certs/router.pem"));
  EXPECT_THAT(router, Contains("--tls-ca=certs/ca.crt"));
  EXPECT_THAT(router, Contains("--http-tls-cert=certs/router.pem"));
  EXPECT_THAT(router, Contains("--api-keys=keys"));
  for (const FleetMember& worker : PlannedWorkers(options, "", "r:1")) {
    EXPECT_THAT(worker.arguments, Contains("--tls-cert=certs/worker.pem"));
    EXPECT_THAT(worker.arguments, Contains("--tls-ca=certs/ca.crt"));
    EXPECT_THAT(worker.arguments, Not(Contains("--api-keys=keys")));
  }
  const FleetOptions plain = {.router_address = ""};
  EXPECT_THAT(PlannedRouter(plain, "").arguments, Not(Contains(StartsWith("--tls"))));
}

TEST(FleetPlan, WorkersGetTheArgumentsOfAllThenThoseOfTheirRole) {
  const FleetOptions options = {.model = "m.gguf",
                                .router_address = "",
                                .worker_arguments = {"--kv-blocks=8"},
                                .prefill_arguments = {"--block-size=32"}};
  const std::vector<FleetMember> workers = PlannedWorkers(options, "/bin", "host:1");
  ASSERT_EQ(workers.size(), 2);
  EXPECT_THAT(
      workers[0].arguments,
      ElementsAre("/bin/baton-prefill-worker", "--listen=127.0.0.1:0", "--worker-id=prefill-0",
                  "--router=host:1", "--model=m.gguf", "--kv-blocks=8", "--block-size=32"));
  EXPECT_EQ(workers[1].name, "decode-0");
  EXPECT_THAT(workers[1].arguments, Contains("/bin/baton-decode-worker"));
  EXPECT_THAT(workers[1].arguments, Not(Contains("--block-size=32")));
}

TEST(FleetPlan, WorkersWithBothRolesCountForBoth) {
  const FleetOptions options = {.prefill_workers = 1,
                                .decode_workers = 0,
                                .both_workers = 2,
                                .router_address = "",
                                .worker_arguments = {"--kv-blocks=8"},
                                .both_arguments = {"--block-size=32"},
                                .both_kv_cache_mib = 77};
  EXPECT_THAT(PlannedRouter(options, "").arguments,
              AllOf(Contains("--min-prefill-workers=3"), Contains("--min-decode-workers=2")));
  const std::vector<FleetMember> workers = PlannedWorkers(options, "/bin", "host:1");
  ASSERT_EQ(workers.size(), 3);
  EXPECT_EQ(workers[0].name, "prefill-0");
  EXPECT_EQ(workers[2].name, "both-1");
  EXPECT_THAT(
      workers[2].arguments,
      ElementsAre("/bin/baton-worker", "--listen=127.0.0.1:0", "--worker-id=both-1",
                  "--router=host:1", "--kv-blocks=8", "--block-size=32", "--kv-cache-mib=77"));
  EXPECT_THAT(workers[2].variables, IsEmpty());
}

TEST(FleetPlan, EveryProgramServesMetricsIfTheRouterShall) {
  const FleetOptions options = {.router_address = "", .metrics_address = "127.0.0.1:9100"};
  EXPECT_THAT(PlannedRouter(options, "").arguments, Contains("--metrics-listen=127.0.0.1:9100"));
  for (const FleetMember& worker : PlannedWorkers(options, "", "")) {
    EXPECT_THAT(worker.arguments, Contains("--metrics-listen=127.0.0.1:0"));
  }
}

TEST(FleetPlan, DecodeWorkersGiveUpPriorityBesidePrefillWorkersAlone) {
  FleetOptions options = {.router_address = ""};
  EXPECT_THAT(PlannedWorkers(options, "", "").front().variables, IsEmpty());
  EXPECT_THAT(PlannedWorkers(options, "", "").back().variables, ElementsAre("BATON_NICE=6"));
  options.prefill_workers = 0;
  EXPECT_THAT(PlannedWorkers(options, "", "").back().variables, IsEmpty());
}

TEST(FleetPlan, TheShareOfARoleReplacesWhatItsArgumentsSayOfTheKvPool) {
  const FleetOptions options = {.router_address = "",
                                .worker_arguments = {"--kv-cache-mib=0", "--kv-type=f16"},
                                .decode_arguments = {"--kv-cache-mib", "0"},
                                .decode_kv_cache_mib = 77};
  const std::vector<FleetMember> workers = PlannedWorkers(options, "", "");
  EXPECT_THAT(workers[0].arguments, Contains("--kv-cache-mib=0"));
  EXPECT_THAT(std::span(workers[1].arguments).last(2),
              ElementsAre("--kv-type=f16", "--kv-cache-mib=77"));
  EXPECT_THAT(workers[1].arguments, Not(Contains("--kv-cache-mib=0")));
}

}  // namespace
}  // namespace baton
