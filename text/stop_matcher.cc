#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

uint64_t StopEdgeKey(uint32_t node, char byte) {
  return (uint64_t{node} << 8) | static_cast<uint8_t>(byte);
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) AddStop(stop);
  LinkFailures();
}

void StopMatcher::AddStop(std::string_view stop) {
  uint32_t node = 0;
  for (const char byte : stop) {
    const auto [edge, added] =
        edges_.emplace(StopEdgeKey(node, byte), static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.push_back({.depth = nodes_[node].depth + 1});
    node = edge->second;
  }
  nodes_[node].stop_length = nodes_[node].depth;
}

// A node's failure link depends on its parent's, so nodes are linked in order of depth.
void StopMatcher::LinkFailures() {
  struct Edge {
    uint32_t from;
    uint32_t to;
    char byte;
  };
  std::vector<Edge> edges;
  edges.reserve(edges_.size());
  for (const auto& [key, to] : edges_) {
    edges.push_back({static_cast<uint32_t>(key >> 8), to, static_cast<char>(key & 0xFF)});
  }
  std::sort(edges.begin(), edges.end(),
            [&](const Edge& a, const Edge& b) { return nodes_[a.to].depth < nodes_[b.to].depth; });
  for (const Edge& edge : edges) {
    Node& node = nodes_[edge.to];
    node.failure = edge.from == 0 ? 0 : Next(nodes_[edge.from].failure, edge.byte);
    if (node.stop_length == 0) node.stop_length = nodes_[node.failure].stop_length;
  }
}

uint32_t StopMatcher::Next(uint32_t node, char byte) const {
  while (true) {
    const auto edge = edges_.find(StopEdgeKey(node, byte));
    if (edge != edges_.end()) return edge->second;
    if (node == 0) return 0;
    node = nodes_[node].failure;
  }
}

StopMatcher::Result StopMatcher::Append(std::string_view text) {
  if (stopped_) return {"", true};
  for (size_t i = 0; i < text.size(); ++i) {
    state_ = Next(state_, text[i]);
    const uint32_t stop_length = nodes_[state_].stop_length;
    if (stop_length == 0) continue;
    held_.append(text.substr(0, i + 1));
    held_.resize(held_.size() - stop_length);
    stopped_ = true;
    return {std::exchange(held_, ""), true};
  }
  held_.append(text);
  const size_t certain = held_.size() - nodes_[state_].depth;
  std::string emit = held_.substr(0, certain);
  held_.erase(0, certain);
  return {std::move(emit), false};
}

std::string StopMatcher::Flush() {
  state_ = 0;
  return std::exchange(held_, "");
}

}  // namespace baton
