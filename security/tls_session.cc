#include "security/tls_session.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

bool MustWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

constexpr size_t kRecordBytes = size_t{16} << 10;  // most bytes of one record

int Length(size_t bytes) {
  return static_cast<int>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
}

}  // namespace

// OpenSSL's own socket BIO writes with write(), which would raise SIGPIPE.
struct SocketBio {
  static TlsSession& SessionOf(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }

  static int Write(BIO* bio, const char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    TlsSession& session = SessionOf(bio);
    // Behind a batch come also the records that OpenSSL sends by itself.
    if (session.fills_batch_ || !session.batch_.empty()) {
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
      session.batch_.insert(session.batch_.end(), begin, begin + count);
      return count;
    }
    const ssize_t sent = send(session.socket_, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
    if (sent < 0 && MustWait()) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
  }

  static int Read(BIO* bio, char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = recv(SessionOf(bio).socket_, bytes, static_cast<size_t>(count), 0);
    if (got < 0 && MustWait()) BIO_set_retry_read(bio);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(got);
  }

  static long Control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static BIO_METHOD* Method() {
    static BIO_METHOD* const kMethod = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_TYPE_DESCRIPTOR | BIO_TYPE_SOURCE_SINK, "socket");
      BIO_meth_set_write(made, &Write);
      BIO_meth_set_read(made, &Read);
      BIO_meth_set_ctrl(made, &Control);
      return made;
    }();
    return kMethod;
  }
};

TlsSession::TlsSession(const TlsContext& context, int socket)
    : socket_(socket), session_(SSL_new(context.native())) {
  BIO* const bio = BIO_new(SocketBio::Method());
  CHECK(session_ != nullptr && bio != nullptr) << "OpenSSL has no memory";
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(session_, bio, bio);
  if (context.rules().side == TlsSide::kServer) {
    SSL_set_accept_state(session_);
  } else {
    SSL_set_connect_state(session_);
  }
}

TlsSession::~TlsSession() { SSL_free(session_); }

void TlsSession::ExpectHost(const std::string& host) {
  CHECK(!host.empty());
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), &address) == 1;
  if (is_address) {
    CHECK_EQ(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_), host.c_str()), 1);
  } else {
    CHECK_EQ(SSL_set1_host(session_, host.c_str()), 1);
    SSL_set_tlsext_host_name(session_, host.c_str());
  }
  SSL_clear_options(session_, SSL_OP_IGNORE_UNEXPECTED_EOF);
}

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

ssize_t TlsSession::Encrypt(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = Write(bytes.subspan(done));
    if (count < 0) return count;
    done += static_cast<size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

bool TlsSession::SendBatch() {
  while (batch_begin_ < batch_.size()) {
    const ssize_t sent =
        send(socket_, batch_.data() + batch_begin_, batch_.size() - batch_begin_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    batch_begin_ += static_cast<size_t>(sent);
  }
  batch_.clear();
  batch_begin_ = 0;
  return true;
}

ssize_t TlsSession::WriteBatch(std::span<const iovec> runs) {
  if (!established()) {
    return Write({static_cast<const std::byte*>(runs.front().iov_base), runs.front().iov_len});
  }
  waits_ = Waits::kNothing;
  ssize_t plain = std::exchange(batch_plain_, 0);
  fills_batch_ = plain == 0;
  size_t left = fills_batch_ ? kMostBatchBytes : 0;
  record_.clear();
  ssize_t count = 0;
  for (size_t i = 0; i < runs.size() && left > 0 && count >= 0; ++i) {
    std::span run(static_cast<const std::byte*>(runs[i].iov_base), std::min(runs[i].iov_len, left));
    left -= run.size();
    plain += static_cast<ssize_t>(run.size());
    const size_t whole = record_.empty() ? run.size() / kRecordBytes * kRecordBytes : 0;
    if (whole > 0) count = Encrypt(run.first(whole));
    run = run.subspan(whole);
    while (!run.empty() && count >= 0) {
      const std::span part = run.first(std::min(run.size(), kRecordBytes - record_.size()));
      record_.insert(record_.end(), part.begin(), part.end());
      run = run.subspan(part.size());
      if (record_.size() < kRecordBytes) break;
      count = Encrypt(record_);
      record_.clear();
    }
  }
  if (count >= 0) count = Encrypt(record_);
  fills_batch_ = false;
  if (count < 0) return count;
  if (SendBatch()) return plain;
  if (MustWait()) {
    batch_plain_ = plain;
    waits_ = Waits::kOutput;
    errno = EAGAIN;
  }
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
  SendBatch();
  ERR_clear_error();
}

}  // namespace baton
