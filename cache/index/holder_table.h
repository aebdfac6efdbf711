// The small number of each (worker, tier) in the global index, so that holders are bits of a set
// and 16 bits of an entry.
//
// Forgetting a worker costs nothing: its numbers are retired, readers leave them out at once, and
// they are given to others only when the index has swept every run (Recycle).
//
// Thread safety: one writer; live_words, LiveWord, owner and assignments on any thread. A reader
// that saw assignments() unchanged from before its first look at the index until after its last may
// trust owner() for what it found.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/index/indexed_worker.h"
#include "cache/index/reserved_memory.h"
#include "cache/index/run_holders.h"

namespace baton {

class HolderTable {
 public:
  static constexpr size_t kMaxHolders = size_t{1} << 16;

  struct Owner {
    IndexedWorker worker;
    CacheTier tier = CacheTier::kDevice;
  };

  HolderTable();

  // ---- any thread ----
  // Words of bits that cover every number ever given.
  size_t live_words() const { return live_words_.load(std::memory_order_acquire); }
  uint64_t LiveWord(size_t word) const { return LoadWord(live_.words() + word); }
  Owner owner(HolderId holder) const;
  // Grows whenever a number is given.
  uint64_t assignments() const { return assignments_.load(std::memory_order_acquire); }

  // ---- the writer ----
  std::optional<HolderId> Find(IndexedWorker worker, CacheTier tier) const;
  // Nothing when all numbers are in use.
  std::optional<HolderId> FindOrAdd(IndexedWorker worker, CacheTier tier);
  // The numbers that the worker had, which are retired now.
  std::vector<HolderId> Retire(IndexedWorker worker);
  bool IsRetired(HolderId holder) const;
  bool has_retired() const { return !retired_.empty(); }
  // How many are retired; the first `count` of them may be given again. REQUIRES: nothing in the
  // index names them.
  size_t retired() const { return retired_.size(); }
  void Recycle(size_t count);

 private:
  using Numbers = std::array<int32_t, kCacheTiers>;  // -1: none

  ReservedMemory live_;
  ReservedMemory owners_;
  std::atomic<size_t> live_words_{0};
  std::atomic<uint64_t> assignments_{0};
  absl::flat_hash_map<IndexedWorker, Numbers> numbers_;
  std::vector<HolderId> retired_;
  std::vector<HolderId> free_;
  size_t given_ = 0;  // numbers below it were given at least once
};

}  // namespace baton
