// Prints the nodes of a prefix tree, one line each: depth as indentation, blocks, first units.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cache/radix_nodes.h"

namespace baton {

inline std::vector<CacheUnit> UnitsOfNode(const RadixNodes& nodes, RadixNodeIndex node) {
  std::vector<CacheUnit> units;
  for (const BlockId block : nodes[node].blocks) {
    for (int32_t i = 0; i < nodes.units().block_size(); ++i) {
      units.push_back(nodes.units().At(block, i));
    }
  }
  return units;
}

// Leaves out the roots. Children are in the order of their units.
inline std::string RadixShape(const RadixNodes& nodes) {
  constexpr size_t kUnitsShown = 4;
  std::vector<std::vector<RadixNodeIndex>> children = nodes.ChildrenOfAll();
  std::vector<std::pair<RadixNodeIndex, int>> stack;
  for (const auto& [cache_namespace, root] : nodes.roots()) stack.emplace_back(root, 0);
  std::ostringstream out;
  while (!stack.empty()) {
    const auto [node, depth] = stack.back();
    stack.pop_back();
    if (depth > 0) {
      const std::vector<CacheUnit> units = UnitsOfNode(nodes, node);
      out << std::string(2 * depth, ' ') << nodes[node].size() << " blocks [";
      for (size_t i = 0; i < std::min(units.size(), kUnitsShown); ++i) {
        out << (i > 0 ? " " : "") << units[i];
      }
      out << (units.size() > kUnitsShown ? " ...]\n" : "]\n");
    }
    std::sort(children[node].begin(), children[node].end(),
              [&](auto a, auto b) { return UnitsOfNode(nodes, b) < UnitsOfNode(nodes, a); });
    for (const RadixNodeIndex child : children[node]) stack.emplace_back(child, depth + 1);
  }
  return out.str();
}

}  // namespace baton
