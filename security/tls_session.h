// One TLS connection over a non-blocking socket. The owner waits for the socket; this class reads
// and writes it. The first reads and writes do the handshake.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "security/tls_context.h"

struct ssl_st;  // SSL

namespace baton {

class TlsSession {
 public:
  static constexpr size_t kMostBatchBytes = size_t{256} << 10;

  // `socket` is connected, or connecting, and outlives this.
  TlsSession(const TlsContext& context, int socket);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // For a client. The handshake then fails unless the server's certificate has this host name or IP
  // address. Data that ends without the end that TLS itself has is then an error, because an
  // attacker may have cut it off. Call it before the handshake. REQUIRES: `host` is not empty.
  void ExpectHost(const std::string& host);

  // As read and send. They return the bytes moved, or -1 and errno: EAGAIN if the socket is not
  // ready, EPROTO if TLS fails (see failure()). Read returns 0 if the peer has closed the
  // connection.
  ssize_t Read(std::span<std::byte> into);
  ssize_t Write(std::span<const std::byte> bytes);
  // As writev, for a bulk connection (TlsRules). Encrypts up to kMostBatchBytes and sends all their
  // records at once. After EAGAIN, the next call must have the same bytes again, possibly with more
  // behind them. REQUIRES: established, or as Write.
  ssize_t WriteBatch(std::span<const iovec> runs);

  // Continues the handshake without moving data. Returns 1 if it is complete, else as Read.
  int Handshake();
  bool established() const;

  // True if received bytes wait here, so that the socket does not report them.
  bool HasUnread() const;
  // The last call returned EAGAIN because the socket must first become readable, or writable.
  bool wants_input() const { return waits_ == Waits::kInput; }
  bool wants_output() const { return waits_ == Waits::kOutput; }

  // Tells the peer that nothing follows. Does not wait.
  void CloseSending();

  // Why TLS failed: "certificate verify failed". Empty: it did not.
  const std::string& failure() const { return failure_; }

 private:
  enum class Waits { kNothing, kInput, kOutput };

  friend struct SocketBio;

  // Turns the result of an OpenSSL function into that of Read.
  ssize_t Outcome(int result);
  // Encrypts the bytes into batch_.
  ssize_t Encrypt(std::span<const std::byte> bytes);
  // Sends batch_. Returns false and sets errno if bytes are left.
  bool SendBatch();

  const int socket_;
  ssl_st* session_;
  // Encrypted bytes that the socket has not taken, from batch_begin_ on.
  std::vector<std::byte> batch_;
  size_t batch_begin_ = 0;
  bool fills_batch_ = false;  // records go to batch_, not to the socket
  ssize_t batch_plain_ = 0;   // bytes that the batch encrypts, for which WriteBatch returned EAGAIN
  std::vector<std::byte> record_;  // gathers short runs
  Waits waits_ = Waits::kNothing;
  bool is_drained_ = false;  // the last read found no whole record
  std::string failure_;
};

}  // namespace baton
