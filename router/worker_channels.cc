#include "router/worker_channels.h"

#include "rpc/channel.h"

namespace baton {

std::shared_ptr<grpc::Channel> WorkerChannels::Get(const std::string& address) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) channel = MakeChannel(address);
  return channel;
}

void WorkerChannels::KeepOnly(const absl::flat_hash_set<std::string>& addresses) {
  std::lock_guard lock(mutex_);
  absl::erase_if(channels_, [&](const auto& entry) { return !addresses.contains(entry.first); });
}

}  // namespace baton
