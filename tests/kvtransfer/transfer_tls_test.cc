#include "kvtransfer/sockets/transfer_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "kvtransfer/sockets/create_socket_transport.h"
#include "tests/kvtransfer/transfer_test_worker.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

TransportSource Over(const TlsFiles& tls) {
  return {[tls](TransportOptions options) {
            return CreateSocketTransport(
                {.tcp_listen = "127.0.0.1:0", .tcp_advertise_host = "", .shm_name = "", .tls = tls},
                std::move(options));
          },
          PoolMemory::kHost};
}

// Sends two blocks and returns how the sender's transfer ended.
absl::Status Send(TestWorker& from, TestWorker& to, uint64_t id) {
  const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 2), .tokens = 32};
  EXPECT_TRUE(to.transport().Expect(spec).ok());
  EXPECT_TRUE(from.transport()
                  .StartSend({.sender_transfer = id + 100, .ticket = to.Ticket(spec), .tokens = 32})
                  .ok());
  from.transport().Announce(id + 100, MakeBlocks(0, 2), true, "");
  return from.WaitSent(id + 100).status;
}

TEST(TransferTls, RefusesFilesThatAreMissing) {
  const TrialSet set;
  TlsFiles files = set.Files("worker");
  files.certificate = set.Path("gone");
  EXPECT_EQ(TransferTls::Open(files).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(TransferTls::Open(set.Files("worker")).ok());
}

TEST(TransferTls, LetsWorkersExchangeBlocks) {
  const TrialSet set;
  TestWorker a(Over(set.Files("worker")), {}, 1), b(Over(set.Files("worker")), {}, 2);
  EXPECT_EQ(Send(a, b, 1), absl::OkStatus());
  set.Renew();  // the connection that is open stays
  EXPECT_EQ(Send(a, b, 2), absl::OkStatus());
}

TEST(TransferTls, RefusesCertificatesOfOtherRolesAndOtherAuthorities) {
  const TrialSet set;
  const TrialSet other;
  TestWorker worker(Over(set.Files("worker")), {}, 1);
  uint64_t id = 1;
  for (const TlsFiles& files :
       {set.Files("router"), set.Files("operator"), set.Files("client"), other.Files("worker")}) {
    TestWorker intruder(Over(files), {}, 2);
    EXPECT_EQ(Send(intruder, worker, id++).code(), absl::StatusCode::kUnavailable)
        << files.certificate;
    EXPECT_EQ(Send(worker, intruder, id++).code(), absl::StatusCode::kUnavailable)
        << files.certificate;
  }
}

TEST(TransferTls, DoesNotTalkToATransportWithoutIt) {
  const TrialSet set;
  TestWorker encrypted(Over(set.Files("worker")), {}, 1), plain(Over({}), {}, 2);
  EXPECT_EQ(Send(plain, encrypted, 1).code(), absl::StatusCode::kUnavailable);
  const absl::Status refused = Send(encrypted, plain, 2);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
