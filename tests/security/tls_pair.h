// Two ends of a connection in one thread, each with a TlsSession.
//
// Thread safety: belongs to one thread.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include "common/file_descriptor.h"
#include "security/tls_session.h"

namespace baton {

class TlsPair {
 public:
  TlsPair(const TlsContext& server, const TlsContext& client) {
    std::array<int, 2> sockets;
    (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data());
    server_socket_ = FileDescriptor(sockets[0]);
    client_socket_ = FileDescriptor(sockets[1]);
    server_ = std::make_unique<TlsSession>(server, sockets[0]);
    client_ = std::make_unique<TlsSession>(client, sockets[1]);
  }

  // Returns true if both ends complete the handshake. In TLS 1.3, a client may be done before the
  // server has seen its certificate.
  bool ShakeHands() {
    for (int turn = 0; turn < 20; ++turn) {
      const int of_client = client_->Handshake();
      const int client_error = errno;
      const int of_server = server_->Handshake();
      const int server_error = errno;
      if (of_client == 1 && of_server == 1) return true;
      if (of_client == 0 || of_server == 0) return false;
      if (of_client < 0 && client_error != EAGAIN) return false;
      if (of_server < 0 && server_error != EAGAIN) return false;
    }
    return false;
  }

  // Sends `text` from one end to the other, and returns what arrives.
  static std::string Pass(TlsSession& from, TlsSession& to, const std::string& text) {
    std::string arrived;
    size_t sent = 0;
    std::array<std::byte, 5000> bytes;
    while (arrived.size() < text.size()) {
      if (sent < text.size()) {
        const ssize_t count = from.Write(std::as_bytes(std::span(text).subspan(sent)));
        if (count < 0 && errno != EAGAIN) break;
        sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
      }
      ssize_t got = 0;
      while ((got = to.Read(bytes)) > 0) {
        arrived.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(got));
      }
      if (got == 0 || errno != EAGAIN) break;
    }
    return arrived;
  }

  TlsSession& server() { return *server_; }
  TlsSession& client() { return *client_; }
  void CloseClientSocket() {
    client_.reset();
    client_socket_ = FileDescriptor();
  }

 private:
  FileDescriptor server_socket_;
  FileDescriptor client_socket_;
  std::unique_ptr<TlsSession> server_;
  std::unique_ptr<TlsSession> client_;
};

}  // namespace baton
