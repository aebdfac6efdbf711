#include "router/grpc/client_access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

namespace baton {
namespace {

constexpr char kGenerate[] = "/baton.v1.Inference/Generate";
constexpr char kStatus[] = "/baton.v1.Inference/GetStatus";

class ClientAccessTest : public ::testing::Test {
 protected:
  ClientAccessTest() {
    std::ofstream file(path_);
    for (const CallerRole role : {CallerRole::kClient, CallerRole::kOperator}) {
      ApiKeyEntry entry;
      entry.id = CallerRoleName(role);
      entry.digest = DigestOfKey(CallerRoleName(role));
      entry.tenant = "acme";
      entry.role = role;
      file << FormatApiKey(entry);
    }
    file.close();
    keys_ = *ApiKeys::Open(path_);
  }
  ~ClientAccessTest() override { std::remove(path_.c_str()); }

  const std::string path_ = ::testing::TempDir() + "client_access_" + std::to_string(getpid());
  std::unique_ptr<ApiKeys> keys_;
  const RpcCaller plain_ = {};
  const RpcCaller anonymous_ = {.encrypted = true, .caller = {}};
  const RpcCaller certified_ = {
      .encrypted = true, .caller = {.roles = {CallerRole::kClient}, .tenant = "from-certificate"}};
  const RpcCaller worker_ = {.encrypted = true,
                             .caller = {.roles = {CallerRole::kWorker}, .tenant = std::nullopt}};
};

TEST_F(ClientAccessTest, TrustsThePlainNetworkOfARouterWithoutKeys) {
  const auto caller = ClientOfCall(plain_, kGenerate, nullptr, "");
  ASSERT_TRUE(caller.ok());
  EXPECT_FALSE(caller->tenant.has_value());
  EXPECT_TRUE(ClientOfCall(plain_, kStatus, nullptr, "").ok());
}

TEST_F(ClientAccessTest, ReadsNoKeyWithoutEncryption) {
  EXPECT_EQ(ClientOfCall(plain_, kGenerate, keys_.get(), "client").status(),
            absl::UnauthenticatedError("unauthenticated"));
  EXPECT_TRUE(ClientOfCall(plain_, kStatus, keys_.get(), "").ok()) << "of operators";
}

TEST_F(ClientAccessTest, PrefersTheCertificate) {
  const auto caller = ClientOfCall(certified_, kGenerate, keys_.get(), "client");
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->tenant, "from-certificate");
}

TEST_F(ClientAccessTest, TakesTheTenantOfTheKey) {
  for (const RpcCaller& who : {anonymous_, worker_}) {
    const auto caller = ClientOfCall(who, kGenerate, keys_.get(), "client");
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(caller->tenant, "acme");
  }
}

TEST_F(ClientAccessTest, RefusesWithoutASaying) {
  for (const char* key : {"", "wrong"}) {
    EXPECT_EQ(ClientOfCall(anonymous_, kGenerate, keys_.get(), key).status(),
              absl::UnauthenticatedError("unauthenticated"));
    EXPECT_EQ(ClientOfCall(anonymous_, kStatus, keys_.get(), key).status(),
              absl::UnauthenticatedError("unauthenticated"));
  }
}

TEST_F(ClientAccessTest, KeepsAClientsKeyFromWhatOperatorsDo) {
  EXPECT_EQ(ClientOfCall(anonymous_, kStatus, keys_.get(), "client").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(ClientOfCall(anonymous_, kStatus, keys_.get(), "operator").ok());
  EXPECT_TRUE(ClientOfCall(anonymous_, kGenerate, keys_.get(), "operator").ok());
}

TEST_F(ClientAccessTest, WithoutKeysTakesEveryClientButNoOperator) {
  EXPECT_TRUE(ClientOfCall(anonymous_, kGenerate, nullptr, "").ok());
  EXPECT_EQ(ClientOfCall(anonymous_, kStatus, nullptr, "").status().code(),
            absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace baton
