// Which parts of a chunked prompt each worker has cached, and which chunks one worker could pull
// from another. A long chunk has several parts (pieces), and chunks may share parts. A chunk can be
// pulled from a worker that has all its parts.
//
// Thread safety: plain data; const functions may be called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "routing/worker_registry.h"

namespace baton {

class ChunkHoldings {
 public:
  // `part_tokens`: tokens of each part. `chunks`: the parts of each chunk, as indices. REQUIRES:
  // the indices are valid.
  ChunkHoldings(std::vector<int64_t> part_tokens, std::vector<std::vector<int32_t>> chunks);

  // The worker has this part. REQUIRES: a valid index.
  void Hold(WorkerNumber worker, int32_t part);

  // Tokens of all chunks that the worker has.
  int64_t TokensOf(WorkerNumber worker) const;
  // Tokens that `to` lacks of the chunks that `from` has.
  int64_t TokensToPull(WorkerNumber from, WorkerNumber to) const;
  // Those chunks, rising. Of equal chunks, the first.
  std::vector<int32_t> ChunksToPull(WorkerNumber from, WorkerNumber to) const;

 private:
  using Parts = std::vector<bool>;

  const Parts& PartsOf(WorkerNumber worker) const;
  // Calls `take(chunk, tokens)` for each chunk that `has` has and `lacks` lacks a part of. `tokens`
  // are those of parts that no earlier call counted.
  template <typename Take>
  void ForEach(const Parts& has, const Parts& lacks, const Take& take) const;

  std::vector<int64_t> part_tokens_;
  std::vector<std::vector<int32_t>> chunks_;
  Parts none_;
  absl::flat_hash_map<WorkerNumber, Parts> held_;
};

}  // namespace baton
