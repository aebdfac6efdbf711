// The speeds of all workers of a fleet, and what requests in it are like. Fed with every finished
// request; a worker that has not finished any yet is taken for an average one.
//
// Pure; not thread-safe: belongs to its host.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "routing/worker_registry.h"
#include "routing/worker_throughput.h"

namespace baton {

// What a request's ledger says. A zero is "not known" and teaches nothing.
struct FinishedRequest {
  WorkerNumber decode{0};
  std::optional<WorkerNumber> prefill;  // none: prefilled by the decode worker
  int64_t cached_tokens = 0;            // of the prompt, where it was prefilled
  int64_t computed_tokens = 0;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
  int64_t first_token_us = 0;  // since it was routed
  int64_t completion_tokens = 0;
  int64_t inter_token_us = 0;
  int64_t decode_batch = 0;  // sequences on the decode worker when it was routed, with itself
};

// What a pull of a cached prefix came to, also one that failed.
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
  // The mean of recent requests.
  double completion_tokens() const { return completion_tokens_; }
  double prefill_us() const { return prefill_us_; }

 private:
  WorkerThroughput& At(WorkerNumber number);
  void LearnPrefill(WorkerThroughput& speeds, const FinishedRequest& request) const;
  void LearnHandOff(WorkerThroughput& speeds, const FinishedRequest& request) const;
  void LearnDecode(WorkerThroughput& speeds, const FinishedRequest& request) const;
  static void LearnPull(WorkerThroughput& speeds, const FinishedPull& pull);

  WorkerThroughput fleet_;
  absl::flat_hash_map<WorkerNumber, WorkerThroughput> of_worker_;
  double completion_tokens_ = 128;
  double prefill_us_ = 50'000;
};

}  // namespace baton
