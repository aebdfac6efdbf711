#include "security/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "common/check.h"

namespace baton {
namespace {

bool MustWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

// OpenSSL's own socket BIO writes with write(), which would raise SIGPIPE.
int SocketWrite(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(SocketOf(bio), bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  if (sent < 0 && MustWait()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int SocketRead(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(SocketOf(bio), bytes, static_cast<size_t>(count), 0);
  if (got < 0 && MustWait()) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long SocketControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_TYPE_DESCRIPTOR | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, &SocketWrite);
    BIO_meth_set_read(made, &SocketRead);
    BIO_meth_set_ctrl(made, &SocketControl);
    return made;
  }();
  return method;
}

int Length(size_t bytes) {
  return static_cast<int>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
}

}  // namespace

TlsSession::TlsSession(const TlsContext& context, int socket)
    : session_(SSL_new(context.native())) {
  BIO* const bio = BIO_new(SocketMethod());
  CHECK(session_ != nullptr && bio != nullptr) << "OpenSSL has no memory";
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session_, bio, bio);
  if (context.rules().side == TlsSide::kServer) {
    SSL_set_accept_state(session_);
  } else {
    SSL_set_connect_state(session_);
  }
}

TlsSession::~TlsSession() { SSL_free(session_); }

ssize_t TlsSession::Outcome(int result) {
  waits_ = Waits::kNothing;
  if (result > 0) return result;
  const int system_error = errno;
  switch (SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ:
      waits_ = Waits::kInput;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      waits_ = Waits::kOutput;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      if (system_error == 0) return 0;
      errno = system_error;
      return -1;
    default: {
      const char* const reason = ERR_reason_error_string(ERR_get_error());
      failure_ = reason == nullptr ? "unknown error" : reason;
      ERR_clear_error();
      errno = EPROTO;
      return -1;
    }
  }
}

ssize_t TlsSession::Read(std::span<std::byte> into) {
  ERR_clear_error();
  errno = 0;
  const ssize_t count = Outcome(SSL_read(session_, into.data(), Length(into.size())));
  is_drained_ = count < 0;
  return count;
}

ssize_t TlsSession::Write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  ERR_clear_error();
  errno = 0;
  const ssize_t count = Outcome(SSL_write(session_, bytes.data(), Length(bytes.size())));
  if (count != 0) return count;
  errno = EPIPE;  // OpenSSL reports the end of the other side
  return -1;
}

int TlsSession::Handshake() {
  ERR_clear_error();
  errno = 0;
  return static_cast<int>(Outcome(SSL_do_handshake(session_)));
}

bool TlsSession::established() const { return SSL_is_init_finished(session_) == 1; }

// OpenSSL also reports a part of a record, with which it can do nothing yet.
bool TlsSession::HasUnread() const { return !is_drained_ && SSL_has_pending(session_) == 1; }

void TlsSession::CloseSending() {
  if (!established()) return;
  ERR_clear_error();
  SSL_shutdown(session_);
  ERR_clear_error();
}

}  // namespace baton
