// Tests of fleets of several builds: workers with different protocol versions or backends.
#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ServiceVersionsTest : public ServiceTest {
 protected:
  static v1::GenerateRequest Remote() {
    v1::GenerateRequest request = LongPrompt();
    request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
    return request;
  }
  // Sends one heartbeat for a worker that does not exist. Returns the router's response.
  v1::HeartbeatResponse Heartbeat(const v1::KvFingerprint& fingerprint) {
    v1::HeartbeatRequest request;
    request.mutable_status()->set_worker_id("newcomer");
    request.mutable_status()->set_address("127.0.0.1:9");
    request.mutable_status()->set_role(v1::WORKER_ROLE_PREFILL);
    request.mutable_status()->set_epoch(99);
    *request.mutable_fingerprint() = fingerprint;
    v1::HeartbeatResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::Registry::NewStub(channel_)->Heartbeat(&context, request, &response).ok());
    return response;
  }
};

TEST_F(ServiceVersionsTest, WorkersWhoseVersionsOverlapArePaired) {
  FakeWorker& decode = AddDecode({.protocol = {.oldest = 5, .newest = 6}});
  FakeWorker& prefill = AddPrefill(decode, {.protocol = {.oldest = 6, .newest = 9}});
  const Answer answer = Generate(Remote());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(prefill.engine().prefilled().size(), 1u);
}

TEST_F(ServiceVersionsTest, WorkersWithoutACommonVersionServeButAreNotPaired) {
  FakeWorker& decode = AddDecode({.protocol = {.oldest = 5, .newest = 6}});
  for (const ProtocolRange range : {ProtocolRange{7, 8}, ProtocolRange{3, 4}}) {
    FakeWorker& prefill = AddPrefill(decode, {.protocol = range});
    const Answer refused = Generate(Remote());
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE) << range.ToString();
    EXPECT_THAT(refused.status.error_message(), HasSubstr("a common protocol version"));
    const Answer answer = Generate(LongPrompt());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(prefill.engine().prefilled().size(), 0u) << range.ToString();
  }
}

TEST_F(ServiceVersionsTest, AWorkerOfThePreviousBuildIsAccepted) {
  AddDecode();
  v1::KvFingerprint before = FingerprintToWire(FakeEngine(1, {}).fingerprint());
  EXPECT_EQ(before.numerics(), "r1");
  EXPECT_EQ(before.numerics_revision(), 1u);
  before.clear_numerics();
  before.clear_oldest_protocol_version();
  const v1::HeartbeatResponse response = Heartbeat(before);
  EXPECT_TRUE(response.accepted()) << response.reason();
}

TEST_F(ServiceVersionsTest, OtherNumericsAndUnconfirmedBackendsAreRefusedByName) {
  AddDecode();
  v1::KvFingerprint other = FingerprintToWire(FakeEngine(1, {}).fingerprint());
  other.set_numerics("r2");
  v1::HeartbeatResponse response = Heartbeat(other);
  EXPECT_FALSE(response.accepted());
  EXPECT_THAT(response.reason(), HasSubstr("numerics r2"));
  other = FingerprintToWire(FakeEngine(1, {.backend = "cuda"}).fingerprint());
  response = Heartbeat(other);
  EXPECT_FALSE(response.accepted());
  EXPECT_THAT(response.reason(), HasSubstr("has backend cuda, the fleet has cpu"));
}

}  // namespace
}  // namespace baton
