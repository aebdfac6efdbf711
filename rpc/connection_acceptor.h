// Accepts a server's connections, so that no crowd of them can make it deaf: gRPC's own listener
// stops for ever where the process has no descriptor left.
//
// A connection is a stranger until its first byte came; every client of gRPC speaks first.
// Strangers wait here, a bounded number of them for a bounded time, and the oldest makes room.
// Those that spoke are handed on while descriptors are left: what a process needs besides is kept
// back. A connection that is too many is closed at once, and the next one may find room again.
//
// Descriptors are given out lowest first: one below a bound says that less than so many are open.
//
// Thread safety: constructor and destructor from one thread; `take` is called on a thread of this.
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
  int32_t max_descriptors = 1024;  // of the process, with any connection
  int32_t max_strangers = 256;
  std::chrono::milliseconds stranger_patience{10'000};
};

// What a process that may have `limit` descriptors can give to connections.
AcceptorLimits LimitsForDescriptors(int64_t limit);

class ConnectionAcceptor {
 public:
  using Take = std::function<void(FileDescriptor)>;

  // REQUIRES: sockets that listen, non-blocking. `address` is what the log calls them.
  ConnectionAcceptor(std::vector<FileDescriptor> listeners, std::string address,
                     const AcceptorLimits& limits, Take take);
  // Takes no more; strangers are closed.
  ~ConnectionAcceptor();

 private:
  using SteadyClock = std::chrono::steady_clock;

  struct Stranger {
    FileDescriptor socket;
    SteadyClock::time_point since;
  };

  void Run();
  // Waits until something came, a stranger's time is over, or the end, and does what follows. False
  // at the end.
  bool Turn();
  void AcceptFrom(const FileDescriptor& listener);
  // Leaves no descriptor behind.
  void HandOnOrClose(FileDescriptor& socket);
  void LogFull(const char* why);

  const std::vector<FileDescriptor> listeners_;
  const std::string address_;
  const AcceptorLimits limits_;
  const Take take_;
  FileDescriptor stop_;             // an eventfd: readable at the end
  std::deque<Stranger> strangers_;  // the oldest first
  SteadyClock::time_point paused_until_;
  SteadyClock::time_point logged_at_;
  int64_t closed_ = 0;  // since the last line of the log
  std::thread thread_;  // last: it starts when all else is there
};

}  // namespace baton
