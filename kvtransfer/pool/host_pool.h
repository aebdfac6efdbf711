// Pool in this process's memory. It lends its own bytes, without a copy.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "kvtransfer/transfer_pool.h"

namespace baton {

class HostPool final : public TransferPool {
 public:
  // `base` outlives this. `shared_file` holds the memory from offset 0 on (DeviceBuffer::shared_fd)
  // and stays the caller's; -1 means no file.
  HostPool(std::byte* base, const KvPoolLayout& layout, int shared_file = -1)
      : TransferPool(layout), base_(base), shared_file_(shared_file) {}

  PoolMemory memory() const override { return PoolMemory::kHost; }
  std::optional<PoolLease> Acquire(PoolAccess, LandingParts parts, LayerRange layers) override {
    return PoolLease(PieceBytes(base_, layout(), std::move(parts), layers));
  }
  bool Settled() override { return true; }
  std::optional<PoolExport> exported() const override {
    if (shared_file_ < 0) return std::nullopt;
    return PoolExport{.file = shared_file_, .layout = &layout()};
  }
  std::byte* AddressForCopyEngine() const override { return base_; }

 private:
  std::byte* const base_;
  const int shared_file_;
};

}  // namespace baton
