#include "router/grpc/worker_channels.h"

#include "absl/container/flat_hash_set.h"
#include "rpc/channel.h"

namespace baton {

std::shared_ptr<grpc::Channel> WorkerChannels::Get(const std::string& address, Epoch epoch) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[Incarnation(address, epoch)];
  if (channel == nullptr) channel = MakeChannel(address, credentials_, LostCalls::kFail);
  return channel;
}

void WorkerChannels::KeepOnly(const std::vector<WorkerRecord>& workers) {
  absl::flat_hash_set<Incarnation> kept;
  for (const WorkerRecord& worker : workers) {
    kept.insert(Incarnation(worker.report.address, worker.report.epoch));
  }
  std::lock_guard lock(mutex_);
  absl::erase_if(channels_, [&kept](const auto& entry) { return !kept.contains(entry.first); });
}

}  // namespace baton
