// A ChunkMover that does what a test tells it to. It moves no bytes: a packed chunk only has room
// for them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/chunk_mover.h"

namespace baton {

class FakeChunkMover final : public ChunkMover {
 public:
  struct Job {
    std::shared_ptr<const PackedKv> from;  // null: a Pack job
    std::vector<BlockId> blocks;
    int32_t tokens = 0;
    bool cancelled = false;
  };

  explicit FakeChunkMover(int64_t bytes_per_block) : bytes_per_block_(bytes_per_block) {}

  void Pack(uint64_t job, std::vector<BlockId> blocks, int32_t tokens) override {
    Begin(job, {.from = nullptr, .blocks = std::move(blocks), .tokens = tokens});
  }
  void Unpack(uint64_t job, std::shared_ptr<const PackedKv> kv, std::vector<BlockId> blocks,
              int32_t tokens) override {
    EXPECT_EQ(kv->blocks.size(), blocks.size());
    Begin(job, {.from = std::move(kv), .blocks = std::move(blocks), .tokens = tokens});
  }
  void Cancel(uint64_t job) override {
    if (const auto found = jobs.find(job); found != jobs.end()) found->second.cancelled = true;
  }
  std::vector<Done> Poll() override { return std::exchange(done_, {}); }

  // Ends the oldest job. REQUIRES: there is one.
  void EndOne(const absl::Status& status = absl::OkStatus(), int64_t busy_us = 10) {
    const auto node = jobs.extract(jobs.begin());
    const Job& job = node.mapped();
    Done done{.job = node.key(), .status = status, .kv = nullptr, .busy_us = busy_us};
    if (job.cancelled) done.status = absl::CancelledError("cancelled");
    if (done.status.ok() && job.from == nullptr) {
      auto kv = std::make_shared<PackedKv>();
      kv->blocks.resize(job.blocks.size());
      for (PackedBlock& block : kv->blocks) {
        block.bytes.resize(static_cast<size_t>(bytes_per_block_));
      }
      done.kv = std::move(kv);
    }
    done_.push_back(std::move(done));
  }
  void EndAll() {
    while (!jobs.empty()) EndOne();
  }

  std::map<uint64_t, Job> jobs;  // that have not ended

 private:
  void Begin(uint64_t number, Job job) {
    EXPECT_TRUE(jobs.emplace(number, std::move(job)).second) << "job " << number;
  }

  const int64_t bytes_per_block_;
  std::vector<Done> done_;
};

}  // namespace baton
