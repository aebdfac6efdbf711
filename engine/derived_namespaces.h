// The namespaces under which questions and answers of chunked prompts are cached, by the namespace
// of their chunks (chunk_layout.h). A derived namespace is a hash, so nothing else tells to whom it
// belongs. Clearing a tenant needs that.
//
// It forgets derived namespaces under which nothing is cached any more. So its size follows that of
// the prefix tree.
//
// Thread safety: engine thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/cache_key.h"

namespace baton {

class DerivedNamespaces {
 public:
  // `in_use` returns false if nothing is cached under the namespace, and no request uses it.
  explicit DerivedNamespaces(std::function<bool(CacheNamespace derived)> in_use)
      : in_use_(std::move(in_use)) {}

  // Sequences of `derived` have chunks of `base`.
  void Add(CacheNamespace derived, CacheNamespace base);
  // Returns those of `base`, sorted.
  std::vector<CacheNamespace> Of(CacheNamespace base) const;
  size_t size() const { return base_of_.size(); }

  // Size from which Add first looks for namespaces that are not in use.
  static constexpr size_t kFirstCheck = 64;

 private:
  const std::function<bool(CacheNamespace)> in_use_;
  absl::flat_hash_map<CacheNamespace, CacheNamespace> base_of_;
  size_t next_check_ = kFirstCheck;
};

}  // namespace baton
