// Moves chunks between a simulated worker's pool and host memory, one block after the other, as
// ChunkMoverThread does. Host memory is sometimes damaged: a chunk that comes out of the pool may
// have a wrong bit, which its checksum must reveal.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "engine/chunk_mover.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/pool/kv_packer.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_random.h"

namespace baton {

class SimChunkMover final : public ChunkMover {
 public:
  struct Options {
    bool compress = false;
    Mutant mutant = Mutant::kNone;
    uint64_t seed = 0;
  };

  // `pool` is the memory that the kernels see. It and `node` must outlive this.
  SimChunkMover(SimNode* node, const KvPoolLayout& layout, std::byte* pool, const Options& options,
                std::function<void()> wake)
      : node_(*node),
        pool_(pool, layout),
        packer_(&pool_, options.compress),
        mutant_(options.mutant),
        random_(options.seed, "chunk mover"),
        wake_(std::move(wake)) {}

  void Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) override;
  void Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv, std::vector<BlockId> blocks,
              int32_t tokens) override;
  void Cancel(uint64_t job) override;
  std::vector<Done> Poll() override { return std::exchange(done_, {}); }

  // Ends every job now. Call it when the process has died.
  void Abandon();

 private:
  struct Job {
    uint64_t number = 0;
    std::vector<BlockId> blocks;
    int32_t tokens = 0;
    std::shared_ptr<const PackedKv> from;  // null: a Pack job
    std::shared_ptr<PackedKv> to;
    size_t next = 0;
    bool cancelled = false;
  };

  void Start();
  void DoBlock();
  absl::Status Move(Job& job);
  absl::Status UnpackBlock(const Job& job, BlockId block, int32_t tokens);
  void End(Job job, const absl::Status& status);

  SimNode& node_;
  HostPool pool_;
  KvPacker packer_;
  const Mutant mutant_;
  SimRandom random_;
  const std::function<void()> wake_;
  std::deque<Job> packs_;
  std::deque<Job> unpacks_;  // these come first
  std::vector<Done> done_;
  bool runs_ = false;
};

}  // namespace baton
