// A worker's pool as transports see it: an object that lends bytes, and no address.
//
// A transport reads and writes blocks by leases. It acquires a lease of pieces (block tokens × a
// layer range), waits until the lease is ready, and uses the lease's bytes:
//
//   read:  Acquire(kRead) ─▶ Ready ─▶ read bytes() ─▶ let the lease go
//   land:  Acquire(kLand) ─▶ Ready ─▶ write bytes() ─▶ Store ─▶ Ready: the pool has them
//
// A pool has a part for each KV group (cache/kv_pool_layout.h), all in one range of memory.
//
// A host pool lends its own bytes (pool/host_pool.h): every lease is ready at once, nothing is
// copied. A pool that the host cannot read lends staging buffers (pool/staged_pool.h): a copy that
// runs by itself fills a read lease, and Store begins the copy into the pool. There are few staging
// buffers, so Acquire may have none; the transport asks again later and never waits in the call.
//
// Rules:
//  1. No code outside the pool's own files dereferences the pool's memory. Kernels do, which the
//     pool's owner gives the address.
//  2. A lease that is let go before its copy has ended leaves that copy under way. Settled() says
//     when none is. A transport publishes no terminal event before that (rule 2 of transport.h).
//  3. Bytes that were written to a kLand lease and not stored never reach a staged pool; in a host
//     pool they lie where they were written.
//  4. A pool that has an export lends its own bytes: its leases are had at once and are ready.
//
// Thread safety: Acquire, Settled and leases belong to one thread at a time, that of the
// transport's rounds. The rest is immutable. The pool outlives its transport.
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
  kDevice,  // it does not
};

enum class PoolAccess : uint8_t {
  kRead,
  kLand,
  kReadLanded,  // what a copy engine landed, to be checked; counted with kLand where buffers are
                // few
};

// What another process maps to read a pool: a file that holds it from offset 0 on.
struct PoolExport {
  int file = -1;  // a memfd, trusted by its seals (common/shared_page_buffer.h); the pool's own
};

class TransferPool;

// Bytes of some pieces of a pool, lent. Move-only; letting it go gives the bytes back.
class PoolLease {
 public:
  PoolLease() = default;
  // Of a pool's own bytes: ready at once.
  explicit PoolLease(PieceBytes bytes) : bytes_(std::move(bytes)) {}
  // Of a staging buffer of `pool`.
  PoolLease(TransferPool* pool, int32_t buffer, PieceBytes bytes)
      : pool_(pool), buffer_(buffer), bytes_(std::move(bytes)) {}
  PoolLease(PoolLease&& other) noexcept;
  PoolLease& operator=(PoolLease&& other) noexcept;
  ~PoolLease() { LetGo(); }

  // False while a copy of this lease runs. After Store, true means that the pool has the bytes. An
  // error is what the copy came to; the lease is then of no use.
  absl::StatusOr<bool> Ready();
  // REQUIRES: Ready() was true.
  const PieceBytes& bytes() const { return bytes_; }
  // The bytes go into the pool. REQUIRES: a kLand lease that is ready; once.
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

  // A lease of `parts`, in all layers or some. Nothing: none is to be had now; ask again. REQUIRES:
  // the parts lie in the pool and have at most kMaxBlockSize tokens together.
  virtual std::optional<PoolLease> Acquire(PoolAccess access, LandingParts parts,
                                           LayerRange layers) = 0;
  // Whether no copy of a lease that was let go is under way.
  virtual bool Settled() = 0;
  // Nothing where other processes cannot map the pool.
  virtual std::optional<PoolExport> exported() const = 0;
  // Where the pool begins, for a copy engine that takes addresses of any memory (cudaMemcpyAsync).
  // Not to be dereferenced; tests/tree/tree_test.py lists the files that may ask.
  virtual std::byte* AddressForCopyEngine() const = 0;

 protected:
  friend class PoolLease;
  // Of a lease on a staging buffer: PoolLease's functions.
  virtual absl::StatusOr<bool> BufferReady(int32_t /*buffer*/) { return true; }
  virtual void StoreBuffer(int32_t /*buffer*/) {}
  virtual void ReturnBuffer(int32_t /*buffer*/) {}

 private:
  const KvPoolLayout layout_;
};

}  // namespace baton
