#include "common/address_options.h"

#include "common/host_port.h"
#include "common/str_cat.h"

namespace baton {

absl::Status CheckAddresses(std::initializer_list<AddressOption> options) {
  for (const AddressOption& option : options) {
    if (option.address.empty() && option.may_be_empty) continue;
    if (const absl::Status status = ParseHostPort(option.address).status(); !status.ok()) {
      return absl::InvalidArgumentError(StrCat(option.name, ": ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
