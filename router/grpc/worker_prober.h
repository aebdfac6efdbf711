// Thread that probes the workers for the failure detector (failure_detector.h), over the same
// channels as requests. It reports silent workers to the registry and to the calls that run on
// them.
//
// Thread safety: construct and destroy from one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "baton/v1/worker.grpc.pb.h"
#include "router/failure_detector.h"
#include "router/grpc/worker_channels.h"
#include "router/probe_rounds.h"
#include "router/router_core.h"
#include "rpc/client_unary_call.h"

namespace baton {

class WorkerProber {
 public:
  // All pointers must outlive this. A worker that stops answering is found after at most
  // `silence_ms`.
  WorkerProber(RouterCore* core, WorkerChannels* channels, FailureDetector* failure_detector,
               int64_t silence_ms);
  // Cancels the probes in flight.
  ~WorkerProber();

 private:
  using PingCall = ClientUnaryCall<v1::Worker::Stub, v1::PingRequest, v1::PingResponse>;

  void Run();
  void Probe(const FailureDetector::Target& target);
  bool Pause();

  ProbeRounds rounds_;
  WorkerChannels* const channels_;
  const int64_t silence_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int64_t next_probe_ = 0;
  absl::flat_hash_map<int64_t, std::shared_ptr<PingCall>> probes_;  // in flight
  std::thread thread_;
};

}  // namespace baton
