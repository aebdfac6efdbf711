// Interface of a worker's KV pool for transports. A transport gets leases of the pool's bytes,
// never the pool's address.
//
// A transport reads and writes blocks through leases. It acquires a lease of pieces (block tokens ×
// a layer range), waits until the lease is ready, and uses the lease's bytes:
//
//   read:  Acquire(kRead) ─▶ Ready ─▶ read bytes() ─▶ release the lease
//   land:  Acquire(kLand) ─▶ Ready ─▶ write bytes() ─▶ Store ─▶ Ready: the pool has the bytes
//
// A pool has a part for each KV group (cache/kv_pool_layout.h). All parts lie in one range of
// memory.
//
// There are two kinds of pools:
//  - A host pool (pool/host_pool.h) lends its own bytes. Every lease is ready at once and nothing
//    is copied.
//  - A pool that the host cannot read (pool/staged_pool.h) lends staging buffers. An asynchronous
//    copy fills a read lease. Store() starts an asynchronous copy into the pool. Staging buffers
//    are few, so Acquire may return nothing. The transport then asks again later; it never blocks
//    in the call.
//
// Rules:
//  1. Only the pool's own files and kernels dereference the pool's memory. The pool's owner gives
//     kernels the address.
//  2. Releasing a lease does not stop its copy. Settled() returns true when no such copy is
//     running. A transport publishes no terminal event before that (rule 2 of transport.h). If such
//     a copy into the pool failed, TakeStoreError() says so, because the lease no longer can.
//  3. Bytes written to a kLand lease but not stored never reach a staged pool. In a host pool they
//     stay where they were written.
//  4. A read lease of a pool with an export lies in the exported file. The blocks in its bytes()
//  are
//     those of the file.
//
// Thread safety: Acquire, Settled and leases belong to one thread at a time, the thread that runs
// the transport's rounds. Everything else is immutable. The pool outlives its transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "cache/kv_pool_layout.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/pool/pieces.h"

namespace baton {

enum class PoolMemory : uint8_t {
  kHost,    // this process reads and writes it
  kDevice,  // this process cannot access it
};

enum class PoolAccess : uint8_t {
  kRead,
  kLand,
};

// Memory of a pool that other processes can map: this file, from offset 0 on. It is the pool
// itself, or the read buffers of a pool that the host cannot read.
struct PoolExport {
  int file = -1;  // a memfd, owned by the pool; its seals make it safe to trust
                  // (common/shared_page_buffer.h)
  const KvPoolLayout* layout = nullptr;  // of the file; the pool keeps it
};

class DeviceBlockCopies;
class TransferPool;

// Lease of the bytes of some pieces of a pool. Move-only. Its destructor releases the bytes.
class PoolLease {
 public:
  PoolLease() = default;
  // Leases the pool's own bytes: ready at once.
  explicit PoolLease(PieceBytes bytes) : bytes_(std::move(bytes)) {}
  // Leases staging buffer number `buffer` of `pool`.
  PoolLease(TransferPool* pool, int32_t buffer, PieceBytes bytes)
      : pool_(pool), buffer_(buffer), bytes_(std::move(bytes)) {}
  PoolLease(PoolLease&& other) noexcept;
  PoolLease& operator=(PoolLease&& other) noexcept;
  ~PoolLease() { LetGo(); }

  // Returns false while a copy of this lease runs. After Store, true means that the pool has the
  // bytes. An error means that the copy failed; the lease is then useless.
  absl::StatusOr<bool> Ready();
  // REQUIRES: Ready() returned true.
  const PieceBytes& bytes() const { return bytes_; }
  // Starts to write the bytes into the pool. REQUIRES: a kLand lease that is ready; at most one
  // call.
  void Store();

 private:
  void LetGo();

  TransferPool* pool_ = nullptr;  // null: no staging buffer
  int32_t buffer_ = -1;
  PieceBytes bytes_;
};

class TransferPool {
 public:
  explicit TransferPool(const KvPoolLayout& layout) : layout_(layout) {}
  virtual ~TransferPool() = default;
  TransferPool(const TransferPool&) = delete;
  TransferPool& operator=(const TransferPool&) = delete;

  const KvPoolLayout& layout() const { return layout_; }
  virtual PoolMemory memory() const = 0;

  // Returns a lease of `parts` in the given layers, or nothing when none is free now: ask again
  // later. REQUIRES: the parts lie in the pool and have at most kMaxBlockSize tokens together.
  virtual std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                           LayerRange layers) = 0;
  // Returns true when no copy of a released lease is running.
  virtual bool Settled() = 0;
  // Returns the first error of a copy into the pool that failed after its lease was released, and
  // forgets it. The bytes of that lease in the pool are then undefined. OK: there is none.
  virtual absl::Status TakeStoreError() { return absl::OkStatus(); }
  // Copies between the pool and other memory of its device, for transports that move device
  // memory. Their Settled and TakeStoreError are part of this pool's. Null: a host pool, or a
  // device pool that does not make such copies.
  virtual DeviceBlockCopies* block_copies() { return nullptr; }
  // Bytes that leases have copied between the pool and host memory since the pool was created. Safe
  // from any thread.
  virtual int64_t BytesThroughHost() const { return 0; }
  // Returns nothing when other processes can map neither the pool nor its read buffers.
  virtual std::optional<PoolExport> exported() const = 0;
  // Returns where the pool begins, for copy engines that accept addresses of any memory
  // (cudaMemcpyAsync). Callers must not dereference it. Null: the pool lies on several devices, so
  // callers must use leases. tests/tree/tree_test.py lists the files that may call this.
  virtual std::byte* AddressForCopyEngine() const = 0;

 protected:
  friend class PoolLease;
  // PoolLease calls these for leases on a staging buffer.
  virtual absl::StatusOr<bool> BufferReady(int32_t /*buffer*/) { return true; }
  virtual void StoreBuffer(int32_t /*buffer*/) {}
  virtual void ReturnBuffer(int32_t /*buffer*/) {}

 private:
  const KvPoolLayout layout_;
};

}  // namespace baton
