// A number with its noun, for messages to people.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {

// Returns "1 token" or "2 tokens". The noun's plural must end with s.
inline std::string CountedNoun(int64_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace baton
