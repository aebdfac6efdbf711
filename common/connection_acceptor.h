// Accepts the connections of a gRPC or HTTP server, within limits. gRPC's own listener stops
// forever when the process runs out of file descriptors, so a flood of connections could make a
// server unreachable.
//
// A connection is a stranger until it has sent its beginning: a byte, or for a server with TLS the
// whole first record, which has the ClientHello. Every client of both protocols sends first. So a
// handshake that stops in its first message costs the server no TLS state. Strangers are bounded in
// number and in waiting time; a new connection displaces the oldest one. A connection that has sent
// its beginning is passed to the server while descriptors are left; some are reserved for the rest
// of the process. At the descriptor limit the oldest stranger is closed, or the new connection if
// there is no stranger.
//
// The kernel assigns the lowest free descriptor. So a descriptor number below the limit means that
// fewer than `max_descriptors` are open.
//
// Thread safety: constructor and destructor on one thread; `take` runs on this object's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/file_descriptor.h"

namespace baton {

struct AcceptorLimits {
  int32_t max_descriptors = 1024;  // all descriptors of the process
  int32_t max_strangers = 256;
  std::chrono::milliseconds stranger_patience{10'000};
  bool tls = false;  // the server's connections begin with a TLS record
};

// Returns the limits for a process that may open `limit` descriptors. `tls`: as in AcceptorLimits.
AcceptorLimits LimitsForDescriptors(int64_t limit, bool tls);

class ConnectionAcceptor {
 public:
  using Take = std::function<void(FileDescriptor)>;

  // `take` receives each connection that has sent its beginning. `address`: name in the log.
  // REQUIRES: `listeners` are listening, non-blocking sockets.
  ConnectionAcceptor(std::vector<FileDescriptor> listeners, std::string address,
                     const AcceptorLimits& limits, Take take);
  // Stops accepting and closes all strangers.
  ~ConnectionAcceptor();

 private:
  using SteadyClock = std::chrono::steady_clock;

  struct Stranger {
    FileDescriptor socket;
    SteadyClock::time_point since;
    int32_t awaited_bytes = 1;  // SO_RCVLOWAT of the socket
  };

  void Run();
  // Waits for a connection, data, a stranger's timeout, or the end, and handles it. Returns false
  // at the end.
  bool Turn();
  void AcceptFrom(const FileDescriptor& listener);
  // For a stranger that has sent something. Passes the socket to `take_` if its beginning is there,
  // waits for more if not, or closes it if no more will come.
  void HandOnOrClose(Stranger& stranger);
  void LogFull(const char* why);

  const std::vector<FileDescriptor> listeners_;
  const std::string address_;
  const AcceptorLimits limits_;
  const Take take_;
  FileDescriptor stop_;             // eventfd, readable when the destructor runs
  std::deque<Stranger> strangers_;  // the oldest first
  SteadyClock::time_point paused_until_;
  SteadyClock::time_point logged_at_;
  int64_t closed_ = 0;  // since the last log line
  std::thread thread_;  // last member: it starts after all others exist
};

}  // namespace baton
