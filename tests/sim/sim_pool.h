// A simulated worker's KV memory: host memory, or memory that transports cannot read, where a stray
// access crashes the simulation.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kvtransfer/pool/host_pool.h"
#include "tests/kvtransfer/test_pool.h"

namespace baton {

class SimPool {
 public:
  SimPool(const KvLayout& layout, bool unreadable) {
    if (unreadable) {
      unreadable_.emplace(layout, PoolMemory::kDevice, StagedPool::Limits{2, 2});
    } else {
      host_.resize(static_cast<size_t>(layout.pool_bytes()));
      lender_.emplace(host_.data(), layout);
    }
  }

  // What the simulated kernels read and write.
  std::span<std::byte> bytes() {
    return unreadable_ ? std::span(unreadable_->data(), unreadable_->size()) : std::span(host_);
  }
  TransferPool& lender() {
    return unreadable_ ? unreadable_->lender() : static_cast<TransferPool&>(*lender_);
  }

 private:
  std::optional<TestPool> unreadable_;
  std::vector<std::byte> host_;
  std::optional<HostPool> lender_;
};

}  // namespace baton
