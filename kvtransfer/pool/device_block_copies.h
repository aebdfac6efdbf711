// Copies of blocks between a pool and other memory of its device, for transports that send from
// device memory and receive into it (NCCL). No byte of a block passes host memory. The device also
// computes the CRC32C of each piece while it copies.
//
// The other memory has the block's pieces in canonical order (pieces.h), side by side. The pool may
// have any layout.
//
//   Begin ─▶ Ready ─▶ checksums() ─▶ release the copy
//
// A copy depends on no peer, so it ends by itself. Releasing it does not stop it. A transport
// publishes no terminal event before Settled().
//
// Thread safety: as TransferPool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "kvtransfer/pool/pieces.h"
#include "kvtransfer/pool/pool_copies.h"

namespace baton {

class DeviceBlockCopies;

// A copy that has begun. Move-only. Its destructor releases it.
class DeviceBlockCopy {
 public:
  DeviceBlockCopy(DeviceBlockCopies* copies, int32_t number) : copies_(copies), number_(number) {}
  DeviceBlockCopy(DeviceBlockCopy&& other) noexcept
      : copies_(std::exchange(other.copies_, nullptr)), number_(other.number_) {}
  DeviceBlockCopy& operator=(DeviceBlockCopy&& other) noexcept;
  ~DeviceBlockCopy();

  // Returns false while the copy runs. An error means that it failed.
  absl::StatusOr<bool> Ready();
  // Returns the CRC32C of every piece's valid tokens, in canonical order. REQUIRES: Ready()
  // returned true.
  std::span<const uint32_t> checksums() const;
  // The copy's transfer has ended: from now on, Settled() waits for the copy.
  void Abandon();

 private:
  DeviceBlockCopies* copies_ = nullptr;
  int32_t number_ = -1;
};

class DeviceBlockCopies {
 public:
  // Limit of copies at a time. They have at most kMostRuns pieces together, so that their launches
  // fit into the queue of a stream.
  static constexpr int32_t kMostCopies = 64;
  static constexpr int32_t kMostRuns = 8192;
  static int32_t CopiesFor(const KvPoolLayout& layout);
  // Checksums for which the caller provides memory.
  static int64_t Checksums(const KvPoolLayout& layout) {
    return int64_t{CopiesFor(layout)} * PieceCount(layout);
  }

  // `pool` is the pool's address on the device; this class never dereferences it. `rank_layout`: of
  // each rank's part of a divided pool, else null. `checksums` is staging memory. All arguments
  // outlive this. REQUIRES: Checksums() entries; a divided pool's copies reach the first rank.
  DeviceBlockCopies(std::byte* pool, const KvPoolLayout& layout, const KvPoolLayout* rank_layout,
                    PoolCopies& copies, std::span<uint32_t> checksums);
  DeviceBlockCopies(const DeviceBlockCopies&) = delete;
  DeviceBlockCopies& operator=(const DeviceBlockCopies&) = delete;
  // REQUIRES: Settled(), and every DeviceBlockCopy was released.
  ~DeviceBlockCopies();

  // Starts to copy the first `valid_tokens` tokens of `blocks` in these layers to or from `memory`,
  // which is on the pool's device, or the first rank's. `keep` is held until the copy has ended; it
  // keeps `memory` from being used for anything else. Returns nothing while too many copies run:
  // ask again later. An error of the device shows in Ready(). REQUIRES: blocks in the pool,
  // valid_tokens in [1, block_size].
  std::optional<DeviceBlockCopy> Begin(PoolCopies::Direction direction, const GroupBlocks& blocks,
                                       int32_t valid_tokens, LayerRange layers, std::byte* memory,
                                       std::shared_ptr<const void> keep);
  // Returns true if Begin would start a copy now.
  bool HasRoom() { return Free() != nullptr; }
  // Returns true when no copy of a released or abandoned DeviceBlockCopy is running.
  bool Settled();
  // As TransferPool::TakeStoreError.
  absl::Status TakeStoreError() { return std::exchange(store_error_, absl::OkStatus()); }

 private:
  friend class DeviceBlockCopy;
  struct Copy {
    std::span<uint32_t> checksums;  // room for all pieces
    size_t pieces = 0;
    bool owned = false;      // by a DeviceBlockCopy
    bool abandoned = false;  // its transfer has ended
    bool stores = false;     // into the pool
    bool told = false;       // the owner was told of the error
    std::optional<uint64_t> running = {};
    absl::Status failed = {};
    std::shared_ptr<const void> keep = {};
  };

  Copy& At(int32_t number) { return all_[static_cast<size_t>(number)]; }
  Copy* Free();
  // Polls the copy. Returns true when it is not running.
  bool Ended(Copy& copy);
  // The owner of a failed store may never ask for its error.
  void KeepStoreError(const Copy& copy);
  void Release(int32_t number);

  // Set the members below for the copies of a block. Offsets count from `memory`.
  void ListRuns(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                std::byte* memory);
  void ListRankRuns(const GroupBlocks& blocks, int32_t valid_tokens, LayerRange layers,
                    std::byte* memory);

  std::byte* const pool_;
  const KvPoolLayout& layout_;
  const KvPoolLayout* const rank_layout_;
  PoolCopies& copies_;
  std::vector<Copy> all_;
  std::vector<PoolCopies::Run> runs_;
  std::vector<ByteRun> pieces_;    // of a divided pool
  std::vector<ByteRows> padding_;  // of a divided pool
  absl::Status store_error_;
};

}  // namespace baton
