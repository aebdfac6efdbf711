#include "rpc/tls_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "rpc/channel.h"
#include "rpc/rpc_server.h"
#include "tests/rpc/tls_server.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr char kHealth[] = "/grpc.health.v1.Health/Check";

class TlsCredentialsTest : public ::testing::Test {
 protected:
  explicit TlsCredentialsTest(bool grpc_public = false) {
    auto server = RpcServer::Start(
        {.listen = "127.0.0.1:0", .tls = set_.Files("router"), .grpc_public = grpc_public}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  grpc::Status Ask(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                   const std::string& method = kHealth, std::string* certificate = nullptr) {
    return CallEmpty(MakeChannel(server_->address(), credentials), method, certificate);
  }
  grpc::StatusCode Code(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        const std::string& method = kHealth) {
    return Ask(credentials, method).error_code();
  }

  const TrialSet set_{"acme"};
  std::unique_ptr<RpcServer> server_;
};

TEST_F(TlsCredentialsTest, LetOnlyCertificatesOfTheAuthorityIn) {
  EXPECT_EQ(Code(ClientCredentials(set_.Files("client"))), grpc::StatusCode::OK);
  EXPECT_EQ(Code(FleetCredentials(set_.Files("worker"), CallerRole::kRouter)),
            grpc::StatusCode::OK);
  EXPECT_EQ(Code(ClientCredentials(set_.Files(""))), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Code(nullptr), grpc::StatusCode::UNAVAILABLE);
  const TrialSet other;
  TlsFiles stranger = other.Files("client");
  stranger.authorities = set_.Path("ca.crt");
  EXPECT_EQ(Code(ClientCredentials(stranger)), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsCredentialsTest, CheckTheServersAuthorityRoleAndName) {
  const TrialSet other;
  TlsFiles deceived = set_.Files("client");
  deceived.authorities = other.Path("ca.crt");
  EXPECT_EQ(Code(ClientCredentials(deceived)), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status impostor = Ask(FleetCredentials(set_.Files("router"), CallerRole::kWorker));
  EXPECT_EQ(impostor.error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(RenewTrialCertificates({.directory = set_.directory(),
                                      .router_names = std::vector<std::string>{"router.example"}})
                  .ok());
  server_ = *RpcServer::Start({.listen = "127.0.0.1:0", .tls = set_.Files("router")}, {});
  EXPECT_EQ(Code(ClientCredentials(set_.Files("client"))), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Code(FleetCredentials(set_.Files("worker"), CallerRole::kRouter)),
            grpc::StatusCode::OK);
}

TEST_F(TlsCredentialsTest, RefuseCallsByTheTable) {
  const auto client = ClientCredentials(set_.Files("client"));
  EXPECT_EQ(Code(client, "/baton.v1.Registry/Heartbeat"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Code(client, "/baton.v1.Inference/GetStatus"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Code(client, "/baton.v1.Nothing/Nothing"), grpc::StatusCode::PERMISSION_DENIED);
  // The server has no such service; the call gets as far as finding that out.
  EXPECT_EQ(Code(client, "/baton.v1.Inference/Generate"), grpc::StatusCode::UNIMPLEMENTED);
  const auto worker = FleetCredentials(set_.Files("worker"), CallerRole::kRouter);
  EXPECT_EQ(Code(worker, "/baton.v1.Registry/Heartbeat"), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Code(worker, "/baton.v1.Inference/Generate"), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(TlsCredentialsTest, UseFilesThatWereReplaced) {
  const auto client = ClientCredentials(set_.Files("client"));
  std::string first;
  ASSERT_TRUE(Ask(client, kHealth, &first).ok());
  EXPECT_THAT(first, HasSubstr("BEGIN CERTIFICATE"));
  set_.Renew();
  std::string later = first;
  for (int i = 0; i < 200 && later == first; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_TRUE(Ask(client, kHealth, &later).ok());
  }
  EXPECT_NE(later, first);
}

class PublicTlsCredentialsTest : public TlsCredentialsTest {
 protected:
  PublicTlsCredentialsTest() : TlsCredentialsTest(/*grpc_public=*/true) {}
};

TEST_F(PublicTlsCredentialsTest, LetClientsWithoutCertificateCallWhatClientsMay) {
  const auto anonymous = ClientCredentials(set_.Files(""));
  EXPECT_EQ(Code(anonymous), grpc::StatusCode::OK);
  EXPECT_EQ(Code(anonymous, "/baton.v1.Inference/Generate"), grpc::StatusCode::UNIMPLEMENTED);
  for (const char* method : {"/baton.v1.Registry/Heartbeat", "/grpc.health.v1.Health/Watch",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_EQ(Code(anonymous, method), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
  EXPECT_EQ(Code(ClientCredentials(set_.Files("client")), "/baton.v1.Registry/Heartbeat"),
            grpc::StatusCode::PERMISSION_DENIED);
  const TrialSet other;
  TlsFiles stranger = other.Files("worker");
  stranger.authorities = set_.Path("ca.crt");
  EXPECT_NE(Code(ClientCredentials(stranger), "/baton.v1.Registry/Heartbeat"),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace baton
