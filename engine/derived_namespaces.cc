#include "engine/derived_namespaces.h"

#include <algorithm>

namespace baton {

void DerivedNamespaces::Add(CacheNamespace derived, CacheNamespace base) {
  if (base_of_.size() >= next_check_) {
    absl::erase_if(base_of_, [this](const auto& entry) { return !in_use_(entry.first); });
    // At most half of the entries are out of use at the next check, so checks cost O(1) for each Add.
    next_check_ = std::max(kFirstCheck, 2 * base_of_.size());
  }
  base_of_[derived] = base;
}

std::vector<CacheNamespace> DerivedNamespaces::Of(CacheNamespace base) const {
  std::vector<CacheNamespace> found;
  for (const auto& [derived, of] : base_of_) {
    if (of == base) found.push_back(derived);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace baton
