// HTTP client for tests: sends bytes as they are and reads answers from a real socket.
//
// Thread safety: belongs to one thread.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/file_descriptor.h"

namespace baton {

struct RawHttpAnswer {
  int status = 0;                              // 0: the connection ended before a whole head
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;
};

class RawHttpClient {
 public:
  // `receive_bytes`: of the socket's buffer; 0: the system's default.
  explicit RawHttpClient(int32_t port, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) {
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  // Returns false if the server has closed the connection.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void Close() { socket_ = FileDescriptor(); }
  void CloseSendingSide() { shutdown(socket_.get(), SHUT_WR); }

  // Reads one answer. `head_only`: its request was a HEAD.
  RawHttpAnswer Read(bool head_only = false) {
    RawHttpAnswer answer;
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive()) return answer;
    }
    ParseHead(buffer_.substr(0, end), answer);
    buffer_.erase(0, end + 4);
    if (head_only || answer.status == 100 || answer.status == 204) {
      answer.complete = true;
    } else if (answer.headers.contains("content-length")) {
      const size_t length = std::stoul(answer.headers["content-length"]);
      while (buffer_.size() < length && Receive()) {
      }
      answer.complete = buffer_.size() >= length;
      answer.body = TakeBytes(length);
    } else if (answer.headers.contains("transfer-encoding")) {
      ReadChunks(answer);
    } else {
      while (Receive()) {
      }
      answer.body = std::exchange(buffer_, {});
      answer.complete = true;
    }
    return answer;
  }
  RawHttpAnswer Ask(std::string_view request) {
    Send(request);
    return Read();
  }

  // Waits until `text` was received; keeps what was received.
  bool Sees(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!Receive()) return false;
    }
    return true;
  }
  // Waits until the server closes the connection.
  bool IsClosed() {
    while (Receive()) {
    }
    return ended_;
  }
  // Receives at most `count` bytes and drops them. Returns false at the connection's end.
  bool ReceivesSome(size_t count) {
    std::string bytes(count, ' ');
    return recv(socket_.get(), bytes.data(), bytes.size(), 0) > 0;
  }
  const std::string& unread() const { return buffer_; }

 private:
  static constexpr int kPatienceMs = 20'000;

  // Receives more bytes. Returns false at the connection's end or after kPatienceMs.
  bool Receive() {
    pollfd entry = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, kPatienceMs) <= 0) return false;
    char bytes[65536];
    const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
    ended_ = count <= 0;
    if (ended_) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  std::string TakeBytes(size_t count) {
    std::string out = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return out;
  }
  void ReadChunks(RawHttpAnswer& answer) {
    for (;;) {
      size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!Receive()) return;
      }
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!Receive()) return;
      }
      TakeBytes(line + 2);
      answer.body += TakeBytes(size);
      TakeBytes(2);
      if (size == 0) {
        answer.complete = true;
        return;
      }
    }
  }
  static void ParseHead(std::string_view head, RawHttpAnswer& answer) {
    answer.status = std::stoi(std::string(head.substr(9, 3)));
    size_t at = head.find("\r\n");
    while (at != std::string_view::npos) {
      const size_t next = head.find("\r\n", at + 2);
      const std::string_view line =
          head.substr(at + 2, next == std::string_view::npos ? next : next - at - 2);
      const size_t colon = line.find(": ");
      answer.headers[absl::AsciiStrToLower(std::string(line.substr(0, colon)))] =
          line.substr(colon + 2);
      at = next;
    }
  }

  FileDescriptor socket_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace baton
