#include "security/caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

Caller CallerOf(const std::vector<std::string>& uris) { return CallerOfUris(uris); }

TEST(Caller, HasTheRolesOfItsUris) {
  EXPECT_EQ(CallerOf({"baton://router"}).roles, RoleSet{CallerRole::kRouter});
  EXPECT_EQ(CallerOf({"https://example", "baton://worker", "baton://operator"}).roles,
            (RoleSet{CallerRole::kWorker, CallerRole::kOperator}));
  EXPECT_EQ(RoleNames(CallerOf({"baton://worker", "baton://operator"}).roles), "operator, worker");
}

TEST(Caller, HasNoRoleByAnythingElse) {
  for (const char* uri : {"", "baton://", "baton://anonymous", "baton://client", "baton://Router",
                          "baton://router/", "http://router", "BATON://router", "baton://root"}) {
    EXPECT_TRUE(CallerOf({uri}).roles.empty()) << uri;
  }
}

TEST(Caller, HasTheTenantOfAClientsUri) {
  for (const std::string tenant : {"", "acme", "a/b c%", "\x01\xff", "ä"}) {
    const Caller caller = CallerOf({RoleUri(CallerRole::kClient, tenant)});
    EXPECT_EQ(caller.roles, RoleSet{CallerRole::kClient});
    EXPECT_EQ(caller.tenant, tenant);
  }
}

TEST(Caller, HasNoRoleIfAClientsUriIsMalformedOrThereAreTwo) {
  for (const char* tenant : {"%", "%4", "%zz", "a b", "a/b"}) {
    EXPECT_TRUE(
        CallerOf({std::string("baton://client/") + tenant, "baton://operator"}).roles.empty())
        << tenant;
  }
  EXPECT_TRUE(CallerOf({"baton://client/a", "baton://client/b"}).roles.empty());
  EXPECT_TRUE(CallerOf({"baton://client/" + std::string(kMaxTenantBytes + 1, 'a')}).roles.empty());
}

TEST(Caller, FillsInItsTenantAndMayNameNoOther) {
  const Caller acme = {.roles = {CallerRole::kClient}, .tenant = "acme"};
  std::string tenant;
  EXPECT_TRUE(TakeTenant(acme, tenant).ok());
  EXPECT_EQ(tenant, "acme");
  EXPECT_TRUE(TakeTenant(acme, tenant).ok());
  tenant = "other";
  const absl::Status refused = TakeTenant(acme, tenant);
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tenant is \"other\""));
  const Caller without = {.roles = {CallerRole::kClient}, .tenant = ""};
  EXPECT_EQ(TakeTenant(without, tenant).code(), absl::StatusCode::kPermissionDenied);
}

TEST(Caller, MayNameEveryTenantIfItHasNone) {
  std::string tenant = "any";
  EXPECT_TRUE(TakeTenant({.roles = {CallerRole::kOperator}, .tenant = std::nullopt}, tenant).ok());
  EXPECT_EQ(tenant, "any");
}

}  // namespace
}  // namespace baton
