// One channel to each incarnation of a worker, made when first needed. Who comes back at an address
// is not kept waiting by the channel to the one before, which may pause before it connects again.
//
// Thread safety: every function, from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "routing/worker_registry.h"

namespace baton {

class WorkerChannels {
 public:
  std::shared_ptr<grpc::Channel> Get(const std::string& address, Epoch epoch);
  // Lets go of channels to others; calls that run on them keep theirs.
  void KeepOnly(const std::vector<WorkerRecord>& workers);

 private:
  using Incarnation = std::pair<std::string, Epoch>;  // its address

  std::mutex mutex_;
  absl::flat_hash_map<Incarnation, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace baton
