// Tells routers that this worker lives, and that it leaves when it ends, over gRPC. When it does so
// is worker_rpc/registration.h.
//
// Each router has a thread of its own, so that one that does not answer delays no other.
//
// Thread safety: construct and Leave from one thread.
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
  // `status` is asked before every heartbeat, from several threads; it may block.
  HeartbeatClient(std::vector<std::string> routers, v1::KvFingerprint fingerprint,
                  std::function<v1::WorkerStatus()> status);
  ~HeartbeatClient();

  // Says goodbye to every router and stops. Idempotent.
  void Leave();

 private:
  void Run(const std::string& router);
  // Waits; true when it is time to leave.
  bool Pause(int64_t ms);

  const v1::KvFingerprint fingerprint_;
  const std::function<v1::WorkerStatus()> status_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
