// Looks up the names of routers (worker_rpc/router_target.h) at the start and every five seconds,
// and reports the addresses. So a worker finds routers that start later, without a restart.
//
// Thread safety: constructor, Stop and destructor on one thread. `found` and `resolve` run on a
// thread of this object.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_rpc/router_target.h"

namespace baton {

inline constexpr int64_t kResolveIntervalMs = 5000;

// Returns the IP addresses of a host name, each once. Unavailable: the name has none, or no name
// server answers. Blocks until the system's resolver gives up.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

class RouterResolver {
 public:
  using Resolve = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host)>;
  // Gets RouterAddresses::All().
  using Found = std::function<void(const std::vector<std::string>& routers)>;

  RouterResolver(RouterAddresses addresses, Found found, Resolve resolve = ResolveHost,
                 int64_t interval_ms = kResolveIntervalMs);
  // Waits for a look-up that is under way.
  ~RouterResolver();

  // `found` does not run any more when this returns. Does not wait for a look-up. Idempotent.
  void Stop();

 private:
  void Run();
  void ResolveAll();
  bool Pause();

  RouterAddresses addresses_;          // used by the thread alone
  std::vector<std::string> troubles_;  // of each name: the last reported reason; the thread's
  const Found found_;
  const Resolve resolve_;
  const int64_t interval_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last member: it uses the others
};

}  // namespace baton
