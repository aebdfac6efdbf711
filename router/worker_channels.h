// One channel to each worker, made when first needed.
//
// Thread safety: every function, from any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace baton {

class WorkerChannels {
 public:
  std::shared_ptr<grpc::Channel> Get(const std::string& address);
  // Lets go of channels to others; calls that run on them keep theirs.
  void KeepOnly(const absl::flat_hash_set<std::string>& addresses);

 private:
  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace baton
