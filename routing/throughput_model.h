// Learned throughput of every worker in the fleet, and the mean size of recent requests. Every
// finished request updates it. A worker without finished requests counts as an average one.
//
// A worker with few of them counts as something between its own figures and the fleet's of now. The
// fleet's of then would not do: if they were wrong, the worker could look slow, get no requests for
// that reason, and look slow for ever.
//
// Pure. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "routing/worker_registry.h"
#include "routing/worker_throughput.h"

namespace baton {

// Figures of a request's ledger. Zero means unknown and is not learned from.
struct FinishedRequest {
  WorkerNumber decode{0};
  std::optional<WorkerNumber> prefill;  // nullopt: prefilled by the decode worker
  int64_t cached_tokens = 0;            // of the prompt, on the worker that prefilled
  int64_t computed_tokens = 0;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
  int64_t first_token_us = 0;  // since the request was routed
  int64_t completion_tokens = 0;
  int64_t inter_token_us = 0;
  int64_t decode_batch = 0;  // on the decode worker when the request was routed, itself included
};

// Result of a prefix pull, successful or failed.
struct FinishedPull {
  WorkerNumber receiver{0};
  int64_t us = 0;  // from the router's decision to the receiver's answer
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
};

class ThroughputModel {
 public:
  void Learn(const FinishedRequest& request);
  void Learn(const FinishedPull& pull);
  void Forget(WorkerNumber number);

  const WorkerThroughput& Of(WorkerNumber number) const;
  // False for a worker without finished requests: Of returns fleet() for it.
  bool Knows(WorkerNumber number) const { return of_worker_.contains(number); }
  const WorkerThroughput& fleet() const { return fleet_; }
  // Means of recent requests.
  double completion_tokens() const { return completion_tokens_; }
  double prefill_us() const { return prefill_us_; }
  // Expected time to compute so many prompt tokens of several requests, on a mean worker.
  double PromptTokensUs(int64_t tokens) const {
    return static_cast<double>(tokens) * prefill_us_ / computed_tokens_;
  }

 private:
  struct Worker {
    WorkerThroughput speeds = {};
    int64_t lessons = 0;  // `lessons_` when its prior was set
  };

  WorkerThroughput& At(WorkerNumber number);
  const WorkerThroughput& WithPrior(Worker& worker) const;
  void LearnPrefill(WorkerThroughput& speeds, const FinishedRequest& request) const;
  void LearnHandOff(WorkerThroughput& speeds, const FinishedRequest& request) const;
  void LearnDecode(WorkerThroughput& speeds, const FinishedRequest& request) const;
  static void LearnPull(WorkerThroughput& speeds, const FinishedPull& pull);

  WorkerThroughput fleet_;
  int64_t lessons_ = 0;  // calls of Learn
  // Mutable: Of sets a worker's prior. If Learn set those of all workers, each finished request
  // would cost a large fleet's router much time.
  mutable absl::flat_hash_map<WorkerNumber, Worker> of_worker_;
  double completion_tokens_ = 128;
  double prefill_us_ = 50'000;
  double computed_tokens_ = 256;  // in prefill_us_
};

}  // namespace baton
