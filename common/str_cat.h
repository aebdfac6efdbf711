// absl::StrCat that also takes std::string_view. Debian's Abseil has a string_view type of its own.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

template <typename T>
decltype(auto) AsStrCatPiece(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(value.data(), value.size());
  } else {
    return (value);
  }
}

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(AsStrCatPiece(args)...);
}

}  // namespace baton
