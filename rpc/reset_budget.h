// Decides which connections of a gRPC server reset streams in a storm (as in CVE-2023-44487): a
// client begins calls and resets them at once, faster than gRPC ends them. Each connection may have
// some calls without an answer. An answered call is free; all others are forgotten at a fixed rate.
//
// Pure: the caller passes counts and the time.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace baton {

struct ResetLimits {
  // Calls without an answer that a connection may have at a time: those that run, those that its
  // client reset, and those that ended with an error of the connection.
  int64_t unanswered = 0;
  double per_second = 0;  // so many of them are forgotten
  // How long the address of a closed connection gets no other one (reset_guard.h).
  int64_t barred_us = 2'000'000;
};

class ResetBudget {
 public:
  explicit ResetBudget(const ResetLimits& limits) : limits_(limits) {}

  // `unanswered`: all calls that the connection has begun so far, without those that were answered.
  // Returns true if the connection is above its limit. REQUIRES: `now_us` does not fall.
  bool IsExceeded(int64_t connection, int64_t unanswered, int64_t now_us);
  // Forgets connections that were not seen since `now_us`.
  void ForgetSeenBefore(int64_t now_us);
  size_t size() const { return connections_.size(); }

 private:
  struct Seen {
    int64_t unanswered = 0;
    int64_t at_us = 0;
    double level = 0;
  };

  const ResetLimits limits_;
  std::unordered_map<int64_t, Seen> connections_;
};

}  // namespace baton
