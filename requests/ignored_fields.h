// The fields of a request that the reader ignored.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "requests/json_text.h"

namespace baton {

class IgnoredFields {
 public:
  // A hostile body can have a million names. Further ones are dropped.
  static constexpr size_t kMostNames = 64;

  // Remembers the name without indexes, once.
  void Add(const JsonPlace& place);

  // In the order of Add. Untrusted text.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

}  // namespace baton
