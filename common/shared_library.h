// A shared library that is loaded at run time, with its functions looked up by name.
//
// Thread safety: a SharedLibrary belongs to one thread. The loaded library stays loaded, so its
// functions stay valid.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace baton {

class SharedLibrary {
 public:
  // Loads the first of `names` that the dynamic loader finds. Otherwise status() is Unavailable and
  // gives the reason for each name.
  explicit SharedLibrary(const std::vector<std::string>& names);

  // Sets `target`, a pointer to a function or to data, to the address of `symbol`. After the first
  // missing symbol, status() is Unavailable and names it, and later calls do nothing.
  template <typename T>
  void Find(const char* symbol, T*& target) {
    void* const address = Address(symbol);
    if (address == nullptr) return;
    static_assert(sizeof(target) == sizeof(address));
    std::memcpy(&target, &address, sizeof(address));
  }

  // The same, but leaves `target` as it is if the library lacks the symbol, which is no error.
  template <typename T>
  void FindIfPresent(const char* symbol, T*& target) {
    if (Has(symbol)) Find(symbol, target);
  }

  const absl::Status& status() const { return status_; }

 private:
  void* Address(const char* symbol);
  bool Has(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
  absl::Status status_;
};

}  // namespace baton
