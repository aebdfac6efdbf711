// Oracle "isolation": a chunk of a prompt is found in a cache only if another request of the same
// namespace brought it there.
//
// A hit of another tenant's chunk changes no token, because both have the same bits. So only the
// counts of the ledger show it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/prompt_chunks.h"
#include "tests/sim/oracle.h"

namespace baton {

class ChunkOracle {
 public:
  // The client sends this request now.
  void OnSent(const SimGenerateRequest& request);
  // A choice of it has finished. `retried`: the request had more than one attempt, so an earlier
  // one may have cached its own chunks.
  std::optional<Violation> OnFinish(const SimGenerateRequest& request, const FinishInfo& info,
                                    bool retried) const;

 private:
  // What the KV of a chunk depends on.
  struct Seen {
    CacheNamespace cache_namespace;
    std::vector<TokenId> system;  // that the chunk sees
    std::vector<TokenId> chunk;
    uint64_t request = 0;
  };
  static Seen Describe(const SimGenerateRequest& request, size_t chunk);
  bool BroughtByAnother(const Seen& seen) const;

  std::vector<Seen> seen_;
};

}  // namespace baton
