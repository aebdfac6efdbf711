// Oracle "isolation": a chunk of a prompt is found in a cache only if another request of the same
// namespace brought it there.
//
// A hit of another tenant's chunk changes no token, because both have the same bits. So only the
// counts of the ledger show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/prompt_chunks.h"
#include "tests/sim/oracle.h"

namespace baton {

// What the chunked prompts of a run reached. A sweep that reaches little shows little.
struct ChunkCoverage {
  int64_t finished = 0;     // choices of chunked prompts
  int64_t handed_over = 0;  // of them, prefilled by another worker
  int64_t preempted = 0;
  int64_t hits = 0;  // chunks
  int64_t repaired_tokens = 0;
  int64_t pulled_tokens = 0;  // of chunks
  int64_t bypasses = 0;       // of chunk caches
  int64_t evictions = 0;
  int64_t wakes = 0;  // of sleeping chunks
  int64_t damaged = 0;

  void Add(const ChunkCoverage& other);
};

class ChunkOracle {
 public:
  // The client sends this request now.
  void OnSent(const SimGenerateRequest& request);
  // A choice of it has finished. `retried`: the request had more than one attempt, so an earlier
  // one may have cached its own chunks.
  std::optional<Violation> OnFinish(const SimGenerateRequest& request, const FinishInfo& info,
                                    bool retried);
  const ChunkCoverage& coverage() const { return coverage_; }

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
  ChunkCoverage coverage_;
};

}  // namespace baton
