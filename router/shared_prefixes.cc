#include "router/shared_prefixes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace baton {
namespace {

using Prompts = std::vector<const KnownPrompt*>;

// Groups the prompts that are longer than `depth` by their unit there.
std::vector<Prompts> GroupsAt(const Prompts& prompts, size_t depth) {
  std::map<std::pair<uint64_t, uint64_t>, Prompts> groups;
  for (const KnownPrompt* prompt : prompts) {
    if (prompt->hashes.size() <= depth) continue;
    const Hash128& hash = prompt->hashes[depth];
    groups[{hash.high, hash.low}].push_back(prompt);
  }
  std::vector<Prompts> out;
  for (auto& [hash, group] : groups) out.push_back(std::move(group));
  std::stable_sort(out.begin(), out.end(), [](const Prompts& left, const Prompts& right) {
    return left.size() > right.size();
  });
  return out;
}

// Returns how many units from `depth` on all prompts have. A hash covers everything before it.
size_t CommonUnits(const Prompts& prompts, size_t depth) {
  const std::vector<Hash128>& first = prompts.front()->hashes;
  size_t end = depth + 1;
  const auto all_have = [&](size_t at) {
    return std::all_of(prompts.begin(), prompts.end(), [&](const KnownPrompt* prompt) {
      return at < prompt->hashes.size() && prompt->hashes[at] == first[at];
    });
  };
  while (end < first.size() && all_have(end)) ++end;
  return end - depth;
}

int32_t WorkersWith(const Prompts& prompts, size_t units) {
  // Every prompt of a node has the same workers there, but the index may change between questions.
  int64_t most = 0;
  for (const KnownPrompt* prompt : prompts) {
    most = std::max<int64_t>(
        most, std::count_if(prompt->held_units.begin(), prompt->held_units.end(),
                            [&](int32_t held) { return held >= static_cast<int32_t>(units); }));
  }
  return static_cast<int32_t>(most);
}

struct Pending {
  Prompts prompts;
  size_t depth = 0;
  std::vector<PrefixNode>* into = nullptr;
};

}  // namespace

std::vector<PrefixNode> SharedPrefixes(std::span<const KnownPrompt> prompts) {
  std::vector<PrefixNode> roots;
  Prompts all;
  for (const KnownPrompt& prompt : prompts) all.push_back(&prompt);
  // A list instead of a recursion: prompts decide how deep the tree is.
  std::vector<Pending> pending = {{.prompts = std::move(all), .depth = 0, .into = &roots}};
  while (!pending.empty()) {
    const Pending parent = std::move(pending.back());
    pending.pop_back();
    std::vector<Prompts> groups = GroupsAt(parent.prompts, parent.depth);
    parent.into->reserve(groups.size());  // pointers to the nodes stay valid
    for (Prompts& group : groups) {
      const size_t units = CommonUnits(group, parent.depth);
      const size_t end = parent.depth + units;
      PrefixNode& node = parent.into->emplace_back();
      node.hash = group.front()->hashes[end - 1].low;
      node.units = static_cast<int32_t>(units);
      node.prompts = static_cast<int32_t>(group.size());
      node.workers = WorkersWith(group, end);
      pending.push_back({.prompts = std::move(group), .depth = end, .into = &node.children});
    }
  }
  return roots;
}

}  // namespace baton
