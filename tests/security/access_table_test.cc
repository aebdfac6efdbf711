#include "security/access_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;
using enum CallerRole;

TEST(AccessTable, HasEachNameOnce) {
  std::set<std::string_view> names;
  for (const AccessRow& row : AccessTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.allowed.empty()) << row.name;
  }
}

TEST(AccessTable, RefusesWhatHasNoRow) {
  for (const char* name : {"", "/", "/baton.v1.Worker/Shutdown", "/baton.v1.worker/ping",
                           "POST /v1/models", "GET /v1/completions"}) {
    EXPECT_FALSE(WhoMayCall(name).has_value()) << name;
    EXPECT_EQ(CheckAccess(name, {kClient, kOperator, kRouter, kWorker}).code(),
              absl::StatusCode::kPermissionDenied)
        << name;
  }
}

TEST(AccessTable, LetsOnlyWorkersRegister) {
  constexpr char kHeartbeat[] = "/baton.v1.Registry/Heartbeat";
  EXPECT_TRUE(CheckAccess(kHeartbeat, {kWorker}).ok());
  for (const CallerRole role : {kClient, kOperator, kRouter}) {
    const absl::Status refused = CheckAccess(kHeartbeat, {role});
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is for: worker"));
  }
}

TEST(AccessTable, KeepsClientsFromWorkersAndFromWhatOperatorsDo) {
  for (const AccessRow& row : AccessTable()) {
    const bool of_worker = row.name.find("Worker/") != std::string_view::npos;
    EXPECT_TRUE(!of_worker || !CheckAccess(row.name, {kClient}).ok()) << row.name;
  }
  for (const char* method : {"ResizePool", "ClearCache", "ClearChunks", "SetRole", "Inspect",
                             "StreamKvEvents", "ListChunks"}) {
    const std::string name = std::string("/baton.v1.Worker/") + method;
    EXPECT_TRUE(CheckAccess(name, {kOperator}).ok()) << name;
    EXPECT_TRUE(CheckAccess(name, {kRouter}).ok()) << name;
  }
}

TEST(AccessTable, SaysNothingToACallerWithoutRole) {
  const absl::Status refused = CheckAccess("/baton.v1.Inference/Generate", {});
  EXPECT_EQ(refused, absl::UnauthenticatedError("unauthenticated"));
  EXPECT_TRUE(CheckAccess("/grpc.health.v1.Health/Check", {}).ok());
  EXPECT_TRUE(CheckAccess("GET /health", {}).ok());
}

}  // namespace
}  // namespace baton
