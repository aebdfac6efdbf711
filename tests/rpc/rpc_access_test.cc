#include "rpc/rpc_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "baton/v1/inference.grpc.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "rpc/rpc_server_options.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(RpcAccess, EveryMethodOfEveryServiceHasARow) {
  EXPECT_TRUE(
      CheckMethodsHaveRows({v1::Inference::service_full_name(), v1::Registry::service_full_name(),
                            v1::Worker::service_full_name(), v1::PrefillWorker::service_full_name(),
                            v1::DecodeWorker::service_full_name(), "no.such.Service"})
          .ok());
}

TEST(RpcServerOptions, RefusePlaintextThatOtherMachinesReach) {
  EXPECT_TRUE(CheckServerSecurity({.listen = "127.0.0.1:0"}).ok());
  EXPECT_TRUE(CheckServerSecurity({.listen = "0.0.0.0:0", .plaintext = true}).ok());
  const absl::Status refused = CheckServerSecurity({.listen = "0.0.0.0:0"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-cert and --tls-ca, or --plaintext"));
  const TrialSet set;
  EXPECT_TRUE(CheckServerSecurity({.listen = "0.0.0.0:0", .tls = set.Files("router")}).ok());
}

TEST(RpcServerOptions, EncryptAPublicPort) {
  const absl::Status refused =
      CheckServerSecurity({.listen = "127.0.0.1:0", .plaintext = true, .grpc_public = true});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--grpc-public needs --tls-cert"));
}

}  // namespace
}  // namespace baton
