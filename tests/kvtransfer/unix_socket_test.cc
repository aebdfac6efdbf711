#include "kvtransfer/sockets/unix_socket.h"

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "common/shared_page_buffer.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

TEST(UnixSocket, NamesAreShortAndPlain) {
  EXPECT_EQ(*ParseShmAddress("shm:a-Z_0.9"), "a-Z_0.9");
  EXPECT_EQ(*ParseShmAddress(FormatShmAddress(std::string(kMaxShmNameBytes, 'x'))),
            std::string(kMaxShmNameBytes, 'x'));
  for (const std::string address : {"", "shm", "shm:", "tcp:1.2.3.4:5", "shm:a b", "shm:a/b",
                                    "shm:a,b", "shm:a\n", "shm:\xc3\xa4"}) {
    EXPECT_EQ(ParseShmAddress(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_FALSE(ParseShmAddress("shm:" + std::string(kMaxShmNameBytes + 1, 'x')).ok());
  EXPECT_FALSE(ParseShmAddress(std::string("shm:a\0b", 7)).ok());
}

TEST(UnixSocket, ConnectsToAListenerAndChecksTheUser) {
  const std::string name = UniqueShmName();
  EXPECT_EQ(ConnectUnix(name).status().code(), absl::StatusCode::kUnavailable);
  const absl::StatusOr<FileDescriptor> listener = ListenUnix(name);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_FALSE(AcceptUnix(*listener)->has_value());
  const absl::StatusOr<FileDescriptor> connected = ConnectUnix(name);
  ASSERT_TRUE(connected.ok()) << connected.status();
  const absl::StatusOr<std::optional<FileDescriptor>> accepted = AcceptUnix(*listener);
  ASSERT_TRUE(accepted.ok() && accepted->has_value());
  EXPECT_TRUE(CheckSameUser(*connected).ok());
  EXPECT_TRUE(CheckSameUser(**accepted).ok());
}

class SocketPair : public ::testing::Test {
 protected:
  SocketPair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    a_ = FileDescriptor(ends[0]);
    b_ = FileDescriptor(ends[1]);
  }
  ssize_t Send(std::string text, std::span<const int> files) {
    iovec buffer{text.data(), text.size()};
    return SendWithFiles(a_.get(), std::span(&buffer, 1), files);
  }
  FileDescriptor a_, b_;
  std::array<std::byte, 100> buffer_;
  std::vector<FileDescriptor> files_;
};

TEST_F(SocketPair, CarriesFilesBesideBytes) {
  SharedPageBuffer memory = *SharedPageBuffer::Allocate(100, "test");
  memory.data()[3] = std::byte{9};
  const int files[] = {memory.fd(), memory.fd()};
  ASSERT_EQ(Send("hello", files), 5);
  ASSERT_EQ(Send("you", {}), 3);
  ssize_t got = 0;
  while (got < 8) {
    const ssize_t more = ReceiveWithFiles(b_.get(), buffer_, files_);
    ASSERT_GT(more, 0);
    got += more;
  }
  ASSERT_EQ(files_.size(), 2u);
  for (const FileDescriptor& file : files_) {
    EXPECT_EQ(SharedPageView::Map(file.get(), 100)->data()[3], std::byte{9});
  }
  EXPECT_EQ(ReceiveWithFiles(b_.get(), buffer_, files_), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(SocketPair, MoreFilesThanMayComeAtOnceAreAnError) {
  char text[] = "x";
  iovec buffer{text, 1};
  const int files[kMaxFilesAtOnce + 2] = {a_.get(), a_.get(), b_.get(), b_.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(files))] = {};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(files));
  std::memcpy(CMSG_DATA(header), files, sizeof(files));
  ASSERT_EQ(sendmsg(a_.get(), &message, 0), 1);
  EXPECT_EQ(ReceiveWithFiles(b_.get(), buffer_, files_), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_LE(files_.size(), kMaxFilesAtOnce);  // these are closed with the vector
}

}  // namespace
}  // namespace baton
