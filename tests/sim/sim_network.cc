#include "tests/sim/sim_network.h"

#include <algorithm>

namespace baton {

void SimNetwork::Deliver(Lane& lane, int32_t from, int32_t to, int64_t extra_us,
                         std::function<void()> arrive) {
  lane.last_us = std::max(lane.last_us, queue_.now_us() + Latency() + extra_us);
  if (extra_us > 0) delayed_until_us_ = std::max(delayed_until_us_, lane.last_us);
  queue_.At(lane.last_us, [this, path = Path(from, to), arrive = std::move(arrive)]() mutable {
    Arrive(path, std::move(arrive));
  });
}

void SimNetwork::Arrive(Path path, std::function<void()> arrive) {
  if (blocked_.contains(path)) {
    held_[path].push_back(std::move(arrive));
  } else {
    arrive();
  }
}

int64_t SimNetwork::changed_us(int32_t from, int32_t to) const {
  const auto found = changed_us_.find({from, to});
  return found == changed_us_.end() ? 0 : found->second;
}

void SimNetwork::Block(int32_t from, int32_t to) {
  if (blocked(from, to)) return;
  const Path path(from, to);
  const uint64_t serial = next_block_++;
  blocked_[path] = serial;
  changed_us_[path] = queue_.now_us();
  for (const int32_t server : {from, to}) {
    queue_.In(node(server).keepalive_us(), [this, path, serial, server] {
      const auto found = blocked_.find(path);
      if (found == blocked_.end() || found->second != serial) return;
      ResetLinks(path.first, path.second,
                 [server](const SimLink& link) { return link.server() == server; });
    });
  }
}

void SimNetwork::Unblock(int32_t from, int32_t to) {
  const Path path(from, to);
  if (blocked_.erase(path) == 0) return;
  changed_us_[path] = queue_.now_us();
  for (auto& arrive : std::exchange(held_[path], {})) queue_.In(0, std::move(arrive));
}

void SimNetwork::UnblockAll() {
  while (!blocked_.empty()) {
    const Path path = blocked_.begin()->first;
    Unblock(path.first, path.second);
  }
}

void SimNetwork::AddLink(int32_t a, int32_t b, const std::shared_ptr<SimLink>& link) {
  constexpr size_t kSweepAt = 64;
  if (links_.size() >= kSweepAt) {
    std::erase_if(links_, [](const KnownLink& known) { return known.link.expired(); });
  }
  links_.push_back({a, b, link});
}

std::vector<std::shared_ptr<SimLink>> SimNetwork::LinksOf(
    const std::function<bool(const KnownLink&)>& wanted) {
  std::vector<std::shared_ptr<SimLink>> links;
  for (const KnownLink& known : links_) {
    if (!wanted(known)) continue;
    if (auto link = known.link.lock()) links.push_back(std::move(link));
  }
  return links;
}

void SimNetwork::NodeDied(int32_t node) {
  const auto ends_there = [node](const KnownLink& known) {
    return known.a == node || known.b == node;
  };
  for (const auto& link : LinksOf(ends_there)) link->OnNodeDied(node);
}

void SimNetwork::ResetLinks(int32_t a, int32_t b,
                            const std::function<bool(const SimLink&)>& wanted) {
  const auto between = [a, b](const KnownLink& known) {
    return (known.a == a && known.b == b) || (known.a == b && known.b == a);
  };
  for (const auto& link : LinksOf(between)) {
    if (wanted(*link)) link->OnReset();
  }
}

}  // namespace baton
