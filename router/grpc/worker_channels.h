// gRPC channels to workers, one per incarnation, made when first needed. A restarted worker gets a
// channel of its own: its predecessor's channel may pause before it reconnects. A router has many
// open calls and sends lost ones to other workers itself, so gRPC does not send them again.
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
  // `credentials`: as for MakeChannel.
  explicit WorkerChannels(std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr)
      : credentials_(std::move(credentials)) {}

  std::shared_ptr<grpc::Channel> Get(const std::string& address, Epoch epoch);
  // Drops the channels to all other workers. Running calls keep their channels alive.
  void KeepOnly(const std::vector<WorkerRecord>& workers);

 private:
  using Incarnation = std::pair<std::string, Epoch>;  // address and epoch

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mutex_;
  absl::flat_hash_map<Incarnation, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace baton
