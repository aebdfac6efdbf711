// Closes connections whose clients reset calls in a storm (reset_budget.h). gRPC 1.51 has no limit
// of its own: it would buffer calls until its memory is used up, and then read from no connection.
//
// A thread reads the counts of calls that gRPC keeps for each connection (channelz): of up to 100
// connections at a time, every 5 to 200 ms. gRPC does not tell a connection's descriptor; the
// guard finds it by the addresses of both ends.
//
// Thread safety: constructor and destructor on one thread; Admits on any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "rpc/reset_budget.h"

namespace baton {

class ResetGuard {
 public:
  // Watches the connections of the gRPC server at `port`. `address`: its name in the log.
  ResetGuard(int32_t port, std::string address, const ResetLimits& limits);
  ~ResetGuard();

  // Returns false for a new connection that must be closed: for a while after a storm, its
  // address gets no other one.
  bool Admits(int socket);

 private:
  void Run();
  // Looks at the next connections. A round ends with the last connection of the last server.
  void Look(int64_t now_us);
  void LookAt(int64_t connection, int64_t now_us);

  const int32_t port_;
  const std::string address_;
  ResetBudget budget_;
  const int64_t barred_us_;
  int64_t server_ = 0;           // that the next look begins with, by gRPC's number
  int64_t next_connection_ = 0;  // of it
  int64_t round_began_us_ = 0;
  // For a while after a storm, freed memory is given back to the system.
  int64_t last_storm_us_ = std::numeric_limits<int64_t>::min() / 2;
  int64_t next_trim_us_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::map<std::string, int64_t> barred_;  // addresses, and until when
  std::thread thread_;                     // last member: it starts after all others exist
};

}  // namespace baton
