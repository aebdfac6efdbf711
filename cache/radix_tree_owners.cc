// Owners of a RadixTree's namespaces (cache_owners.h).
#include <array>
#include <vector>

#include "cache/radix_tree.h"
#include "common/str_cat.h"

namespace baton {

// A namespace whose owner loses its share keeps its slot. The share of a slot counts, not the slot.
void RadixTree::SetOwnerOf(RadixNodeIndex root, const CacheOwner& owner) {
  if (owner.share == 0) {
    owners_.DropShare(nodes_[root].owner);
    return;
  }
  const OwnerSlot slot = owners_.SlotOf(owner);
  if (slot != nodes_[root].owner) Reown(root, slot);
}

void RadixTree::Reown(RadixNodeIndex root, OwnerSlot owner) {
  owners_.AddNamespace(owner);
  owners_.RemoveNamespace(nodes_[root].owner);
  if (nodes_[root].child_count == 0) {  // a new namespace: no need to look for its nodes
    nodes_[root].owner = owner;
    return;
  }
  const std::vector<std::vector<RadixNodeIndex>> children = nodes_.ChildrenOfAll();
  std::vector<RadixNodeIndex> rest = {root};
  while (!rest.empty()) {
    const RadixNodeIndex at = rest.back();
    rest.pop_back();
    evictable_.Reown(at, owner);
    if (!windows_.empty()) windows_.Reown(nodes_[at].blocks, owner);
    rest.insert(rest.end(), children[at].begin(), children[at].end());
  }
}

absl::Status RadixTree::CheckOwners() const {
  std::array<int64_t, CacheOwners::kSlots> namespaces = {};
  for (const RadixNode& node : nodes_.slots()) {
    if (node.live && node.is_root) ++namespaces[node.owner];
  }
  for (int slot = 1; slot < CacheOwners::kSlots; ++slot) {
    const auto owner = static_cast<OwnerSlot>(slot);
    if (owners_.namespaces(owner) == namespaces[slot] &&
        (namespaces[slot] > 0 || owners_.share(owner) == 0)) {
      continue;
    }
    return absl::InternalError(StrCat("radix tree: owner slot ", slot, " counts ",
                                      owners_.namespaces(owner), " namespaces, recount finds ",
                                      namespaces[slot]));
  }
  return absl::OkStatus();
}

}  // namespace baton
