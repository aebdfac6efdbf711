// The window caches beside one prefix tree, as one object. Empty in a model without windows.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_owners.h"
#include "cache/window_cache.h"
#include "common/strong_int.h"

namespace baton {

class WindowCaches {
 public:
  // REQUIRES: `window` outlives this object.
  void Add(WindowCache* window) { windows_.push_back(window); }
  bool empty() const { return windows_.empty(); }
  auto begin() const { return windows_.begin(); }
  auto end() const { return windows_.end(); }

  // Number of leading blocks of `path` (blocks of the full group) that a match may cover.
  int32_t LongestWhole(std::span<const BlockId> path) const {
    auto whole = static_cast<int32_t>(path.size());
    // Repeats, because a shorter prefix for one window may not be whole for another.
    for (int32_t before = -1; whole != before;) {
      before = whole;
      for (const WindowCache* window : windows_) whole = window->LongestWhole(path.first(whole));
    }
    return whole;
  }
  // The tree gives these full blocks to another owner.
  void Reown(std::span<const BlockId> full, OwnerSlot owner) {
    for (WindowCache* window : windows_) window->Reown(full, owner);
  }
  // The tree frees these full blocks.
  void Drop(std::span<const BlockId> full) {
    for (WindowCache* window : windows_) window->Drop(full);
  }

 private:
  std::vector<WindowCache*> windows_;
};

}  // namespace baton
