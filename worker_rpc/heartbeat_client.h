// Tells routers that this worker lives, and that it leaves when it ends, over gRPC. When it does so
// is worker_rpc/registration.h.
//
// Each router has a thread of its own, so that one that does not answer delays no other.
//
// Thread safety: construct and Leave from one thread; TellNow from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/v1/worker.grpc.pb.h"

namespace baton {

class HeartbeatClient {
 public:
  // `status` is asked before every heartbeat, from several threads; it may block. `drain_ms`: how
  // long calls may run behind the goodbye.
  HeartbeatClient(std::vector<std::string> routers, v1::KvFingerprint fingerprint,
                  std::function<v1::WorkerStatus()> status, int64_t drain_ms = 0);
  ~HeartbeatClient();

  // Sends a heartbeat with the status of now to every router, waits at most `timeout_ms` for their
  // answers, and returns how many came. From any thread but those that `status` waits for.
  int32_t TellNow(int64_t timeout_ms);
  int32_t routers() const { return static_cast<int32_t>(threads_.size()); }

  // Says goodbye to every router and stops. Idempotent.
  void Leave();

 private:
  void Run(const std::string& router, size_t index);
  // Waits until a heartbeat is due; true when it is time to leave.
  bool Pause(int64_t ms, size_t index);
  // Returns the number of the last call of TellNow, which the next heartbeat answers.
  int64_t BeginHeartbeat(size_t index);
  // The router has confirmed a status that was taken behind call `call` of TellNow.
  void SetTold(size_t index, int64_t call);

  const v1::KvFingerprint fingerprint_;
  const std::function<v1::WorkerStatus()> status_;
  const int64_t drain_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;       // guarded by mutex_, as the next three
  int64_t asked_ = 0;          // calls of TellNow
  std::vector<int64_t> told_;  // by router: the calls of TellNow whose status it has confirmed
  std::vector<int64_t> sent_;  // by router: those for which a heartbeat was sent
  std::vector<std::thread> threads_;
};

}  // namespace baton
