#include "common/connection_acceptor.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/listening_sockets.h"

namespace baton {
namespace {

constexpr auto kPatient = std::chrono::hours(1);

// An acceptor that stores the connections that it passes on.
class Server {
 public:
  explicit Server(const AcceptorLimits& limits)
      : listening_(*ListenAt({.host = "127.0.0.1", .port = 0})),
        port_(listening_.port),
        acceptor_(std::move(listening_.sockets), "test", limits, [this](FileDescriptor socket) {
          std::lock_guard lock(mutex_);
          taken_.push_back(std::move(socket));
          changed_.notify_all();
        }) {}

  FileDescriptor Connect() const {
    FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }

  // Waits until `count` connections were passed on, and echoes the first byte of the last one.
  void EchoTheLastOf(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return taken_.size() >= count; });
    char byte = 0;
    EXPECT_EQ(recv(taken_.back().get(), &byte, 1, 0), 1);
    EXPECT_EQ(send(taken_.back().get(), &byte, 1, 0), 1);
  }
  size_t taken() {
    std::lock_guard lock(mutex_);
    return taken_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FileDescriptor> taken_;
  ListeningSockets listening_;
  const int32_t port_;
  ConnectionAcceptor acceptor_;
};

void Say(const FileDescriptor& client, char byte) {
  EXPECT_EQ(send(client.get(), &byte, 1, MSG_NOSIGNAL), 1);
}

// Waits for a byte. Returns 0 if the server closed the connection.
char Hear(const FileDescriptor& client) {
  char byte = 0;
  return recv(client.get(), &byte, 1, 0) == 1 ? byte : '\0';
}

TEST(ConnectionAcceptor, HandsOnConnectionsThatSentBytesWithoutLosingBytes) {
  Server server({.stranger_patience = kPatient});
  const FileDescriptor silent = server.Connect();
  const FileDescriptor client = server.Connect();
  Say(client, 'x');
  server.EchoTheLastOf(1);
  EXPECT_EQ(Hear(client), 'x');
  EXPECT_EQ(server.taken(), 1);
}

void Send(const FileDescriptor& client, const std::string& bytes) {
  EXPECT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
}

// The first record of TLS, which says that it has `length` bytes behind its header.
std::string TlsRecord(int length) {
  return std::string("\x16\x03\x01", 3) + static_cast<char>(length >> 8) +
         static_cast<char>(length & 0xff) + std::string(static_cast<size_t>(length), 'h');
}

TEST(ConnectionAcceptor, HandsOnTlsConnectionsWithTheirWholeFirstRecord) {
  Server server({.max_strangers = 8, .stranger_patience = kPatient, .tls = true});
  for (const int length : {1, 512, 1 << 14}) {
    const size_t taken = server.taken();
    const std::string record = TlsRecord(length);
    const FileDescriptor slow = server.Connect();
    for (const char byte : record.substr(0, 7)) Send(slow, std::string(1, byte));
    // The next connection is handed on, so the first one was looked at.
    const FileDescriptor other = server.Connect();
    Send(other, "G");
    server.EchoTheLastOf(taken + (length == 1 ? 2 : 1));
    EXPECT_EQ(server.taken(), taken + (length == 1 ? 2 : 1));
    if (length == 1) continue;
    Send(slow, record.substr(7));
    server.EchoTheLastOf(taken + 2);
    char byte = 0;
    EXPECT_EQ(recv(slow.get(), &byte, 1, 0), 1);
    EXPECT_EQ(byte, '\x16');
  }
}

TEST(ConnectionAcceptor, ClosesATlsConnectionThatEndsInItsFirstRecord) {
  Server server({.max_strangers = 8, .stranger_patience = kPatient, .tls = true});
  const FileDescriptor client = server.Connect();
  Send(client, TlsRecord(512).substr(0, 100));
  shutdown(client.get(), SHUT_WR);
  char byte = 0;
  EXPECT_LE(recv(client.get(), &byte, 1, 0), 0);
  EXPECT_EQ(server.taken(), 0u);
}

TEST(ConnectionAcceptor, ClosesConnectionsThatSendNothing) {
  Server server({.stranger_patience = std::chrono::milliseconds(1)});
  EXPECT_EQ(Hear(server.Connect()), '\0');
  EXPECT_EQ(server.taken(), 0);
}

TEST(ConnectionAcceptor, TheOldestSilentConnectionIsClosedForANewOne) {
  Server server({.max_strangers = 2, .stranger_patience = kPatient});
  const FileDescriptor oldest = server.Connect();
  const FileDescriptor older = server.Connect();
  const FileDescriptor newest = server.Connect();
  EXPECT_EQ(Hear(oldest), '\0');
  Say(newest, 'n');
  server.EchoTheLastOf(1);
  EXPECT_EQ(Hear(newest), 'n');
  Say(older, 'o');
  server.EchoTheLastOf(2);
  EXPECT_EQ(Hear(older), 'o');
}

TEST(ConnectionAcceptor, ClosesConnectionsBeyondTheLimitAtOnceAndAcceptsAgainWithRoom) {
  constexpr int kLimit = 200;
  Server server({.max_descriptors = kLimit, .stranger_patience = kPatient});
  std::vector<FileDescriptor> others;
  while (others.empty() || others.back().get() < kLimit) others.emplace_back(dup(STDOUT_FILENO));
  EXPECT_EQ(Hear(server.Connect()), '\0');
  others.clear();
  const FileDescriptor client = server.Connect();
  Say(client, 'x');
  server.EchoTheLastOf(1);
  EXPECT_EQ(Hear(client), 'x');
}

TEST(LimitsForDescriptors, ReserveDescriptorsForTheProcess) {
  EXPECT_EQ(LimitsForDescriptors(1024, /*tls=*/false).max_descriptors, 576);
  EXPECT_EQ(LimitsForDescriptors(20'000, /*tls=*/false).max_descriptors, 17'952);
  EXPECT_EQ(
      LimitsForDescriptors(std::numeric_limits<int64_t>::max(), /*tls=*/false).max_descriptors,
      64'512);
  EXPECT_EQ(LimitsForDescriptors(0, /*tls=*/false).max_strangers, 1);
}

}  // namespace
}  // namespace baton
