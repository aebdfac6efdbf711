// The shared-memory transport as a sender whose pool others can map. The tests of the contract and
// of hostile peers show the rest.

#include <poll.h>

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/sockets/unix_socket.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

// Its blocks are lent until the transfer's end, so nothing is to be taken.
TEST(HostShmConnection, ASharedTakenEndsTheConnection) {
  const TransportFactory shm = [](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = "", .tcp_advertise_host = "", .shm_name = UniqueShmName()},
        std::move(options), kPatient);
  };
  TestWorker a(shm, {}, 1);
  const std::string name = UniqueShmName();
  const FileDescriptor listener = *ListenUnix(name);
  const TransferTicket ticket{.transfer_id = 41,
                              .receiver_epoch = Epoch(2),
                              .address = FormatShmAddress(name),
                              .block_count = 3};
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = kTokens}).ok());
  a.transport().Announce(1, MakeBlocks(0, 3), true, "m");
  pollfd wait{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 10'000), 1);
  RawPeer peer(**AcceptUnix(listener));
  ASSERT_TRUE(peer.Read<HelloFrame>().has_value());
  peer.Send(Accept(2));
  EXPECT_TRUE(peer.Read<SharedBlockFrame>().has_value());
  peer.Send(SharedTakenFrame{1});
  EXPECT_TRUE(peer.Closed());
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
