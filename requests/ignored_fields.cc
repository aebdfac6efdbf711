#include "requests/ignored_fields.h"

#include <algorithm>
#include <utility>

namespace baton {

void IgnoredFields::Add(const JsonPlace& place) {
  if (names_.size() == kMostNames) return;
  std::string name = place.NameWithoutIndexes();
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  names_.push_back(std::move(name));
}

}  // namespace baton
