// A ChunkMover that copies real bytes, block by block, when it is polled. Its speed and the damage
// that it does depend on a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/chunk_mover.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/pool/kv_packer.h"

namespace baton {

class PackingChunkMover final : public ChunkMover {
 public:
  // One of `damage_every` chunks is damaged in host memory; 0: none is.
  PackingChunkMover(std::byte* base, const KvPoolLayout& layout, bool compress, uint64_t seed,
                    uint32_t damage_every)
      : pool_(base, layout),
        packer_(&pool_, compress),
        random_(seed),
        damage_every_(damage_every) {}

  void Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) override {
    packs_.push_back({.number = job, .blocks = std::move(blocks), .tokens = tokens});
  }
  void Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv, std::vector<BlockId> blocks,
              int32_t tokens) override {
    unpacks_.push_back(
        {.number = job, .blocks = std::move(blocks), .tokens = tokens, .from = std::move(kv)});
  }
  void Cancel(uint64_t job) override {
    for (Job& one : packs_) one.cancelled |= one.number == job;
  }
  std::vector<Done> Poll() override {
    std::vector<Done> done;
    for (auto steps = random_() % 4; steps > 0 && !(packs_.empty() && unpacks_.empty()); --steps) {
      std::deque<Job>& jobs = unpacks_.empty() ? packs_ : unpacks_;
      const absl::Status status = DoBlock(jobs.front());
      if (status.ok() && jobs.front().next < jobs.front().blocks.size()) continue;
      Job& job = jobs.front();
      Done ended{.job = job.number, .status = status, .kv = nullptr, .busy_us = 10};
      if (status.ok() && job.from == nullptr) {
        ended.kv = std::make_shared<const PackedKv>(std::move(job.to));
      }
      done.push_back(std::move(ended));
      jobs.pop_front();
    }
    return done;
  }

  int64_t damaged = 0;  // chunks that this damaged

 private:
  struct Job {
    uint64_t number = 0;
    std::vector<BlockId> blocks;
    int32_t tokens = 0;
    std::shared_ptr<const PackedKv> from = nullptr;  // null: a Pack job
    PackedKv to = {};
    size_t next = 0;
    bool cancelled = false;
  };

  absl::Status DoBlock(Job& job) {
    if (job.cancelled) return absl::CancelledError("cancelled");
    const int32_t block_size = pool_.layout().block_size();
    const int32_t tokens =
        std::min(block_size, job.tokens - static_cast<int32_t>(job.next) * block_size);
    const BlockId block = job.blocks[job.next];
    if (job.from != nullptr) {
      const absl::Status unpacked = packer_.Unpack(job.from->blocks[job.next], block, tokens);
      job.next += unpacked.ok() ? 1 : 0;
      return unpacked;
    }
    job.to.blocks.reserve(job.blocks.size());
    job.to.blocks.push_back(*packer_.Pack(block, tokens));
    if (++job.next == job.blocks.size() && damage_every_ > 0 && random_() % damage_every_ == 0) {
      std::vector<std::byte>& bytes = job.to.blocks[random_() % job.blocks.size()].bytes;
      bytes[bytes.size() / 2] ^= std::byte{4};
      ++damaged;
    }
    return absl::OkStatus();
  }

  HostPool pool_;
  KvPacker packer_;
  std::mt19937_64 random_;
  const uint32_t damage_every_;
  std::deque<Job> packs_;
  std::deque<Job> unpacks_;
};

}  // namespace baton
