// What a RadixTree looks like, for people.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cache/radix_tree.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kUnitsShown = 4;

}  // namespace

int32_t RadixTree::Depth() const {
  constexpr int32_t kUnknown = -1;
  std::vector<int32_t> depths(nodes_.size(), kUnknown);
  std::vector<NodeIndex> path;
  int32_t deepest = 0;
  for (NodeIndex i = 0; i < static_cast<NodeIndex>(nodes_.size()); ++i) {
    if (!nodes_[i].live) continue;
    NodeIndex at = i;
    for (; at != kNone && depths[at] == kUnknown; at = nodes_[at].parent) path.push_back(at);
    int32_t depth = at == kNone ? -1 : depths[at];  // a root has depth 0
    for (; !path.empty(); path.pop_back()) depths[path.back()] = ++depth;
    deepest = std::max(deepest, depths[i]);
  }
  return deepest;
}

std::string RadixTree::DumpNode(const Node& node, int32_t depth) const {
  std::string line(size_t(2) * depth, ' ');
  if (node.is_root) {
    line += absl::StrFormat("namespace %016x%016x%s", node.cache_namespace.high(),
                            node.cache_namespace.low(), node.is_cut_off ? " (cleared)" : "");
  } else {
    line += StrCat(node.size(), " blocks [");
    const size_t units = node.blocks.size() * block_size_;
    for (size_t i = 0; i < std::min(units, kUnitsShown); ++i) {
      line += StrCat(i > 0 ? " " : "", units_.At(node.blocks[i / block_size_],
                                                 static_cast<int32_t>(i % block_size_)));
    }
    line += StrCat(units > kUnitsShown ? " ..." : "", "] uses ", node.use.uses, " priority ",
                   node.use.priority);
  }
  return StrCat(line, " locks ", node.locks, "\n");
}

std::vector<std::vector<RadixTree::NodeIndex>> RadixTree::ChildrenOfAll() const {
  std::vector<std::vector<NodeIndex>> children(nodes_.size());
  for (NodeIndex i = 0; i < static_cast<NodeIndex>(nodes_.size()); ++i) {
    if (nodes_[i].live && !nodes_[i].is_root) children[nodes_[i].parent].push_back(i);
  }
  return children;
}

std::string RadixTree::Dump(int64_t max_nodes) const {
  // Children behind their parent, in the order of their units; roots by namespace.
  std::vector<std::vector<NodeIndex>> children = ChildrenOfAll();
  std::vector<std::pair<NodeIndex, int32_t>> stack;
  std::vector<NodeIndex> roots;
  for (NodeIndex i = 0; i < static_cast<NodeIndex>(nodes_.size()); ++i) {
    if (nodes_[i].live && nodes_[i].is_root) roots.push_back(i);
  }
  const auto push = [&](std::vector<NodeIndex>& group, int32_t depth) {
    std::sort(group.begin(), group.end(), [&](NodeIndex a, NodeIndex b) {
      if (nodes_[a].is_root) return nodes_[b].cache_namespace < nodes_[a].cache_namespace;
      return FirstUnits(nodes_[b]) < FirstUnits(nodes_[a]);
    });
    for (const NodeIndex node : group) stack.emplace_back(node, depth);
  };
  push(roots, 0);
  std::string out;
  int64_t shown = 0;
  for (; !stack.empty() && shown < max_nodes; ++shown) {
    const auto [node, depth] = stack.back();
    stack.pop_back();
    out += DumpNode(nodes_[node], depth);
    push(children[node], depth + 1);
  }
  const int64_t nodes = children_.size() + static_cast<int64_t>(roots.size());
  if (shown < nodes) out += StrCat("... and ", nodes - shown, " more\n");
  return out;
}

}  // namespace baton
