// A ChunkMover with a thread of its own.
//
// The thread takes Unpack jobs first, because requests wait for them. It copies block by block, and
// looks for Unpack jobs between two blocks of a Pack job. So a request waits for one block at most.
//
// Thread safety: as ChunkMover. The destructor waits for the current block only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/chunk_mover.h"
#include "kvtransfer/pool/kv_packer.h"
#include "kvtransfer/transfer_pool.h"

namespace baton {

class ChunkMoverThread final : public ChunkMover {
 public:
  // `pool` outlives this; no other thread uses its leases. `wake` is called on the thread after
  // each job. With `compress`, packed blocks are compressed.
  ChunkMoverThread(std::unique_ptr<TransferPool> pool, bool compress, std::function<void()> wake);
  // Jobs that have not ended are dropped without a Done.
  ~ChunkMoverThread() override;

  void Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) override;
  void Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv, std::vector<BlockId> blocks,
              int32_t tokens) override;
  void Cancel(uint64_t job) override;
  std::vector<Done> Poll() override;

 private:
  struct Job {
    uint64_t number = 0;
    std::vector<BlockId> blocks;
    int32_t tokens = 0;
    std::shared_ptr<const PackedKv> from;  // null: a Pack job
    PackedKv to = {};                      // of a Pack job
    size_t next = 0;                       // block
    int64_t busy_us = 0;
    bool cancelled = false;
  };

  void Post(std::deque<Job>& jobs, Job job);
  void Run();
  absl::Status DoBlock(Job& job);
  void End(Job job, const absl::Status& status);

  const std::unique_ptr<TransferPool> pool_;
  KvPacker packer_;  // the thread's
  const std::function<void()> wake_;

  std::mutex mutex_;
  std::condition_variable news_;
  // Guarded by mutex_:
  std::deque<Job> packs_;
  std::deque<Job> unpacks_;
  uint64_t current_ = 0;  // Pack job of which the thread copies a block; 0: none
  bool current_cancelled_ = false;
  std::vector<Done> done_;
  bool ends_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
