#include "common/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  std::vector<std::string> reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    const char* const reason = dlerror();
    reasons.emplace_back(reason == nullptr ? "unknown reason" : reason);
  }
  status_ = absl::UnavailableError(
      absl::StrFormat("no library \"%s\": %s", absl::StrJoin(names, "\" or \""),
                      names.empty() ? "no name was given" : absl::StrJoin(reasons, "; ")));
}

void* SharedLibrary::Address(const char* symbol) {
  if (!status_.ok()) return nullptr;
  void* const address = dlsym(handle_, symbol);
  if (address == nullptr) {
    status_ = absl::UnavailableError(absl::StrFormat("%s has no function %s", name_, symbol));
  }
  return address;
}

bool SharedLibrary::Has(const char* symbol) const {
  return status_.ok() && dlsym(handle_, symbol) != nullptr;
}

}  // namespace baton
