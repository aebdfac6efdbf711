// Moves the KV of prompt chunks between the pool and host memory, beside the engine thread.
//
// Every job ends with exactly one Done. Its blocks belong to the mover from the call until then.
//
// Thread safety: engine thread only. An implementation decides where the copies run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cache/packed_kv.h"
#include "common/strong_int.h"

namespace baton {

class ChunkMover {
 public:
  virtual ~ChunkMover() = default;

  // Copies the first `tokens` tokens of `blocks` to host memory. `job` numbers never repeat.
  virtual void Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) = 0;
  // Copies `kv` back into `blocks`, before all Pack jobs that have not ended.
  virtual void Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv, std::vector<BlockId> blocks,
                      int32_t tokens) = 0;
  // Ends a Pack job soon, with Cancelled. Jobs that have ended are ignored.
  virtual void Cancel(uint64_t job) = 0;

  struct Done {
    uint64_t job = 0;
    // DataLoss: the checksum of an Unpack was wrong. Other errors: a copy of the pool failed.
    absl::Status status;
    std::shared_ptr<const PackedKv> kv;  // of a Pack that is OK
    int64_t busy_us = 0;                 // time that the job itself took
  };
  // Returns the jobs that have ended since the last call.
  virtual std::vector<Done> Poll() = 0;
};

}  // namespace baton
