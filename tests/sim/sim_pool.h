// KV memory of a simulated worker. It is host memory, or memory that transports cannot read, where
// a stray access crashes the simulation. Discarded blocks hold arbitrary bytes when they come back.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "engine/resizable_pool.h"
#include "kvtransfer/pool/host_pool.h"
#include "tests/kvtransfer/test_pool.h"

namespace baton {

class SimPool final : public ResizablePool {
 public:
  // `division` returns the number of blocks of every group for a number of blocks of group 0. The
  // last block of each group in `layout` is the scratch block.
  SimPool(const KvPoolLayout& layout, bool unreadable, bool resizable,
          std::function<BlockCounts(int32_t)> division)
      : layout_(layout), resizable_(resizable), division_(std::move(division)) {
    if (unreadable) {
      unreadable_.emplace(layout, PoolMemory::kDevice, StagedPool::Limits{2, 2});
    } else {
      host_.resize(static_cast<size_t>(layout.pool_bytes()));
      lender_.emplace(host_.data(), layout);
    }
  }

  // Returns the memory that the simulated kernels read and write.
  std::span<std::byte> bytes() {
    return unreadable_ ? std::span(unreadable_->data(), unreadable_->size()) : std::span(host_);
  }
  TransferPool& lender() {
    return unreadable_ ? unreadable_->lender() : static_cast<TransferPool&>(*lender_);
  }

  bool resizable() const override { return resizable_; }
  int32_t max_blocks(int32_t group) const override {
    return static_cast<int32_t>(layout_.group(group).num_blocks() - 1);
  }
  BlockCounts BlocksFor(int32_t full) const override { return division_(full); }
  absl::Status Populate(const BlockCounts&) const override { return absl::OkStatus(); }
  void Discard(int32_t group, int32_t begin, int32_t end) override {
    for (int32_t layer = 0; layer < layout_.layers(); ++layer) {
      if (!layout_.IsOf(group, layer)) continue;
      for (const int32_t plane : {0, 1}) {
        for (int32_t block = begin; block < end; ++block) Spoil(layer, plane, block);
      }
    }
  }

 private:
  static constexpr std::byte kGone{0xDB};

  void Spoil(int32_t layer, int32_t plane, int32_t block) {
    const auto offset = static_cast<size_t>(layout_.PieceOffset(layer, plane, block));
    const auto size = static_cast<size_t>(layout_.layout_of(layer).piece_bytes(plane));
    std::ranges::fill(bytes().subspan(offset, size), kGone);
  }

  const KvPoolLayout layout_;
  const bool resizable_;
  const std::function<BlockCounts(int32_t)> division_;
  std::optional<TestPool> unreadable_;
  std::vector<std::byte> host_;
  std::optional<HostPool> lender_;
};

}  // namespace baton
