// Sends heartbeats to routers over gRPC, and a goodbye when the worker leaves.
// worker_rpc/registration.h decides when.
//
// Each router has its own thread, so a router that does not answer delays no other.
//
// Thread safety: constructor and Leave on one thread; TellNow on any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
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
  // `status` is called before every heartbeat, from several threads; it may block. `drain_ms` is
  // how long calls may continue after the goodbye. `metrics_address` is told to the routers.
  // `metrics` counts the heartbeats and must outlive this; null: nothing is counted. `credentials`:
  // as for MakeChannel.
  HeartbeatClient(std::vector<std::string> routers, v1::KvFingerprint fingerprint,
                  std::function<v1::WorkerStatus()> status, int64_t drain_ms = 0,
                  std::string metrics_address = "", MetricSet* metrics = nullptr,
                  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr);
  ~HeartbeatClient();

  // Sends a heartbeat with the present status to every router, waits at most `timeout_ms` for the
  // answers, and returns how many came. REQUIRES: `status` does not wait for the calling thread.
  int32_t TellNow(int64_t timeout_ms);
  int32_t routers() const { return static_cast<int32_t>(threads_.size()); }

  // Sends a goodbye to every router and stops. Idempotent.
  void Leave();

 private:
  void Run(const std::string& router, size_t index);
  // Waits until a heartbeat is due, at most `ms`. Returns true if it is time to leave.
  bool Pause(int64_t ms, size_t index);
  // Returns the number of the newest call of TellNow, for which the next heartbeat is sent.
  int64_t BeginHeartbeat(size_t index);
  // Records that the router has confirmed a status taken after call `call` of TellNow.
  void SetTold(size_t index, int64_t call);
  void Count(size_t index, HeartbeatOutcome outcome);

  const v1::KvFingerprint fingerprint_;
  const std::function<v1::WorkerStatus()> status_;
  const int64_t drain_ms_;
  const std::string metrics_address_;
  MetricSet* const metrics_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // mutex_ guards these five.
  bool leaving_ = false;
  int64_t asked_ = 0;           // calls of TellNow so far
  std::vector<int64_t> told_;   // for each router: newest call of TellNow that it has confirmed
  std::vector<int64_t> sent_;   // for each router: newest call for which a heartbeat was sent
  std::vector<bool> accepted_;  // for each router: the outcome of the last heartbeat
  std::vector<std::thread> threads_;
};

}  // namespace baton
