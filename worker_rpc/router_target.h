// How a worker's --router names its routers: "HOST:PORT" is one router; "dns:///NAME:PORT" is a
// router at every address that the name has, now and later.
//
// Thread safety: pure functions, and a class without locks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

struct RouterTarget {
  std::string host;
  int32_t port = 0;
  bool by_name = false;  // every address of `host` is a router
};

// InvalidArgument names the text. `text` is "HOST:PORT" or "dns:///NAME:PORT".
absl::StatusOr<RouterTarget> ParseRouterTarget(const std::string& text);

// The addresses of all targets, from the latest answer for each name. A name that could not be
// resolved keeps its earlier addresses: a failing resolver must not take the fleet apart.
class RouterAddresses {
 public:
  explicit RouterAddresses(std::vector<RouterTarget> targets);

  // The names to resolve, in the order of OnResolved's `name`.
  const std::vector<std::string>& names() const { return names_; }
  // `hosts`: IP addresses of names()[name], or why there are none.
  void OnResolved(size_t name, const absl::StatusOr<std::vector<std::string>>& hosts);

  // HOST:PORT of every router, each once. Sorted.
  std::vector<std::string> All() const;

 private:
  struct Entry {
    RouterTarget target;
    std::vector<std::string> hosts;
  };
  std::vector<Entry> entries_;
  std::vector<std::string> names_;
};

}  // namespace baton
