// Sends heartbeats to routers over gRPC, and a goodbye when the worker leaves.
// worker_rpc/registration.h decides when.
//
// Each router has its own thread, so a router that does not answer delays no other.
//
// Thread safety: constructor and Leave on one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"

namespace baton {

class HeartbeatClient {
 public:
  // `status` is called before every heartbeat, from several threads; it may block.
  HeartbeatClient(std::vector<std::string> routers, v1::KvFingerprint fingerprint,
                  std::function<v1::WorkerStatus()> status);
  ~HeartbeatClient();

  // Sends a goodbye to every router and stops. Idempotent.
  void Leave();

 private:
  void Run(const std::string& router);
  // Waits up to `ms`. Returns true if it is time to leave.
  bool Pause(int64_t ms);

  const v1::KvFingerprint fingerprint_;
  const std::function<v1::WorkerStatus()> status_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
