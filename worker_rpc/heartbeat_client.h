// Sends heartbeats to routers over gRPC, and a goodbye when the worker leaves.
// worker_rpc/registration.h decides when.
//
// Each router has its own thread, so a router that does not answer delays no other.
//
// The list of routers may change. A router that is not listed any more still gets heartbeats while
// it answers: a router that ends leaves its name's addresses first, and serves for some time after
// that. It is forgotten after kForgetMs without an answer.
//
// Thread safety: constructor and Leave on one thread; the other functions on any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"
#include "metrics/metric_set.h"

namespace baton {

class HeartbeatClient {
 public:
  static constexpr int64_t kForgetMs = 5000;

  // `status` is called before every heartbeat, from several threads; it may block. Older routers
  // always get the role of the first status (HeartbeatRequest.current_role). `drain_ms` is
  // how long calls may continue after the goodbye. `metrics_address` is told to the routers.
  // `metrics` counts the heartbeats and must outlive this; null: nothing is counted. `credentials`:
  // as for MakeChannel.
  HeartbeatClient(const std::vector<std::string>& routers, v1::KvFingerprint fingerprint,
                  std::function<v1::WorkerStatus()> status, int64_t drain_ms = 0,
                  std::string metrics_address = "", MetricSet* metrics = nullptr,
                  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);
  ~HeartbeatClient();

  // Replaces the list of routers (HOST:PORT of each). No effect after Leave.
  void SetRouters(const std::vector<std::string>& routers);

  // Sends a heartbeat with the present status to every router, waits at most `timeout_ms` for the
  // answers, and returns how many came. REQUIRES: `status` does not wait for the calling thread.
  int32_t TellNow(int64_t timeout_ms);
  int32_t routers() const;

  // Sends a goodbye to every router and stops. Idempotent.
  void Leave();

 private:
  struct Router {
    std::string address;
    bool listed = true;
    bool ended = false;     // its thread sends nothing more
    int64_t told = 0;       // newest call of TellNow that it has confirmed
    int64_t sent = 0;       // newest call for which a heartbeat was sent
    bool accepted = false;  // the outcome of the last heartbeat
    std::chrono::steady_clock::time_point answered_at = std::chrono::steady_clock::now();
    std::thread thread;
  };

  void Run(Router& router);
  // Waits until a heartbeat is due, at most `ms`. Returns true if it is time to leave.
  bool Pause(int64_t ms, const Router& router);
  // Returns the number of the newest call of TellNow, for which the next heartbeat is sent.
  int64_t BeginHeartbeat(Router& router);
  // Records that the router has confirmed a status taken after call `call` of TellNow.
  void SetTold(Router& router, int64_t call);
  void Count(Router& router, HeartbeatOutcome outcome);
  // Moves the role of `status` into `current_role`.
  void SplitRole(v1::HeartbeatRequest& request);
  void SetPlace(const Router& router, v1::HeartbeatRequest& request) const;
  // Returns true if the router is not listed and has not answered for kForgetMs.
  bool Forget(Router& router);
  // Both: REQUIRES mutex_.
  int32_t ActiveLocked() const;
  void SetMetricsLocked();

  const v1::KvFingerprint fingerprint_;
  const std::function<v1::WorkerStatus()> status_;
  const int64_t drain_ms_;
  const std::string metrics_address_;
  MetricSet* const metrics_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // mutex_ guards these, apart from the threads' handles and the addresses.
  bool leaving_ = false;
  v1::WorkerRole first_role_ = v1::WORKER_ROLE_UNSPECIFIED;
  int64_t asked_ = 0;                                       // calls of TellNow so far
  std::map<std::string, std::unique_ptr<Router>> routers_;  // by address
};

}  // namespace baton
