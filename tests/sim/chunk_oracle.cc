#include "tests/sim/chunk_oracle.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {

void ChunkCoverage::Add(const ChunkCoverage& other) {
  finished += other.finished;
  handed_over += other.handed_over;
  preempted += other.preempted;
  hits += other.hits;
  repaired_tokens += other.repaired_tokens;
  pulled_tokens += other.pulled_tokens;
  bypasses += other.bypasses;
  evictions += other.evictions;
  wakes += other.wakes;
  damaged += other.damaged;
}

ChunkOracle::Seen ChunkOracle::Describe(const SimGenerateRequest& request, size_t chunk) {
  const ChunkedPrompt& prompt = *request.chunked;
  Seen seen{.cache_namespace = request.cache_namespace,
            .system = {},
            .chunk = prompt.chunks[chunk],
            .request = request.number};
  if (prompt.options.scope == ChunkScope::kSystem) seen.system = prompt.system;
  return seen;
}

void ChunkOracle::OnSent(const SimGenerateRequest& request) {
  if (!request.chunked) return;
  for (size_t i = 0; i < request.chunked->chunks.size(); ++i) {
    seen_.push_back(Describe(request, i));
  }
}

bool ChunkOracle::BroughtByAnother(const Seen& seen) const {
  return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& other) {
    return other.request != seen.request && other.cache_namespace == seen.cache_namespace &&
           other.system == seen.system && other.chunk == seen.chunk;
  });
}

std::optional<Violation> ChunkOracle::OnFinish(const SimGenerateRequest& request,
                                               const FinishInfo& info, bool retried) {
  if (!request.chunked) return std::nullopt;
  const RequestLedger& ledger = info.ledger;
  coverage_.Add({.finished = 1,
                 .handed_over = ledger.prefilled_elsewhere ? 1 : 0,
                 .preempted = ledger.preemptions > 0 ? 1 : 0,
                 .hits = ledger.chunk.hits,
                 .repaired_tokens = ledger.chunk.repaired_tokens});
  if (retried || ledger.preemptions > 0) return std::nullopt;
  int32_t explained = 0;
  for (size_t i = 0; i < request.chunked->chunks.size(); ++i) {
    explained += BroughtByAnother(Describe(request, i)) ? 1 : 0;
  }
  if (ledger.chunk.hits <= explained) return std::nullopt;
  return Violation{"isolation",
                   absl::StrCat("request ", request.number, ": ", ledger.chunk.hits,
                                " of its chunks were cached, but other requests of its namespace "
                                "had only ",
                                explained, " of them"),
                   request.number, -1};
}

}  // namespace baton
