// Options of a program that name addresses.
//
// Thread safety: pure functions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

struct AddressOption {
  std::string_view name;  // "--listen"
  const std::string& address;
  bool may_be_empty = true;  // empty: off
};

// InvalidArgument names the first option whose address is not HOST:PORT.
absl::Status CheckAddresses(std::initializer_list<AddressOption> options);

}  // namespace baton
