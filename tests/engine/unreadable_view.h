// A view of an engine's pool that transports cannot read directly (EngineOptions::lend_pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kvtransfer/pool/staged_pool.h"
#include "tests/kvtransfer/test_pool.h"

namespace baton {

// Pool that copies between the kernels' memory and staging buffers. The address that transports see
// is not accessible, so a stray access crashes the test.
class UnreadableView final : public TransferPool {
 public:
  UnreadableView(std::byte* pool, const KvPoolLayout& layout)
      : TransferPool(layout),
        forbidden_(static_cast<size_t>(layout.pool_bytes())),
        copies_(pool),
        staging_(static_cast<size_t>(StagedPool::StagingBytes(layout, kLimits))),
        staged_(forbidden_.forbidden(), TransferPool::layout(), copies_, staging_, kLimits) {}

  PoolMemory memory() const override { return staged_.memory(); }
  std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                   LayerRange layers) override {
    return staged_.Acquire(access, std::move(parts), layers);
  }
  bool Settled() override { return staged_.Settled(); }
  absl::Status TakeStoreError() override { return staged_.TakeStoreError(); }
  DeviceBlockCopies* block_copies() override { return staged_.block_copies(); }
  int64_t BytesThroughHost() const override { return staged_.BytesThroughHost(); }
  std::optional<PoolExport> exported() const override { return std::nullopt; }
  std::byte* AddressForCopyEngine() const override { return staged_.AddressForCopyEngine(); }

  int64_t copies() const { return copies_.begun; }

 private:
  static constexpr StagedPool::Limits kLimits = {.read_buffers = 2, .land_buffers = 2};

  TwiceMappedMemory forbidden_;
  SlowCopies copies_;
  std::vector<std::byte> staging_;
  StagedPool staged_;
};

}  // namespace baton
