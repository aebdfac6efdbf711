// Which parts of a chunked prompt each worker has cached, and which chunks one worker could pull
// from another. A long chunk has several parts (pieces), and chunks may share parts. A chunk can be
// pulled from a worker that has all its parts in its pool. A worker that has parts in host memory
// (sleeping chunks) has them for its own requests, but sends them to no other worker.
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

  // The worker has this part. `sends`: in its pool. REQUIRES: a valid index.
  void Hold(WorkerNumber worker, int32_t part, bool sends = true);

  // Tokens of all chunks that the worker can send.
  int64_t TokensOf(WorkerNumber worker) const;
  // Tokens that `to` lacks of the chunks that `from` can send.
  int64_t TokensToPull(WorkerNumber from, WorkerNumber to) const;
  // Those chunks, rising. Of equal chunks, the first.
  std::vector<int32_t> ChunksToPull(WorkerNumber from, WorkerNumber to) const;

 private:
  using Parts = std::vector<bool>;

  using Held = absl::flat_hash_map<WorkerNumber, Parts>;
  const Parts& PartsOf(const Held& held, WorkerNumber worker) const;
  // Calls `take(chunk, tokens)` for each chunk that `has` has and `lacks` lacks a part of. `tokens`
  // are those of parts that no earlier call counted.
  template <typename Take>
  void ForEach(const Parts& has, const Parts& lacks, const Take& take) const;

  std::vector<int64_t> part_tokens_;
  std::vector<std::vector<int32_t>> chunks_;
  Parts none_;
  Held held_;
  Held sent_;  // those that the worker can send
};

}  // namespace baton
