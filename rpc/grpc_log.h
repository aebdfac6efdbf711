// Limits gRPC's own log lines. A client that connects and sends no TLS makes gRPC log a line each
// time, so that hostile clients could fill disks.
//
// Thread safety: functions from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace baton {

// Decides which lines are logged: one in each interval. Counts the others.
//
// Thread safety: every function, from any thread.
class LineInterval {
 public:
  explicit LineInterval(int64_t interval_ms) : interval_ms_(interval_ms) {}

  // Returns the number of lines that were left out since the last one, or a negative number if this
  // line is left out too. `now_ms`: of a monotonic clock.
  int64_t Take(int64_t now_ms);

 private:
  const int64_t interval_ms_;
  std::mutex mutex_;
  bool has_logged_ = false;
  int64_t logged_ms_ = 0;
  int64_t left_out_ = 0;
};

// Returns true for an error that is none: a client asks for a server name, often an IP address,
// that the certificate does not have. The handshake goes on, and the client decides.
bool IsHarmlessGrpcLine(std::string_view message);

// From now on, gRPC's errors go to this process's log, at most one line each ten seconds, and its
// other lines nowhere.
void LimitGrpcLog();
// From now on, gRPC logs nothing: for a program whose output a person reads. Errors of calls say
// enough.
void SilenceGrpcLog();

}  // namespace baton
