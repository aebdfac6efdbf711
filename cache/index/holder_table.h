// Maps each (worker, tier) to a small number in the global index. So holders are bits of a set, or
// 16 bits of an entry.
//
// Forgetting a worker is cheap. Its numbers are retired, and readers ignore them at once. They are
// reused only after the index has swept every run (Recycle).
//
// Thread safety: one writer. Any thread may call live_words, LiveWord, owner and assignments. A
// reader reads assignments() before its first read of the index and after its last. If the value is
// the same, it may trust owner() for the holders that it found.
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
  // Number of 64-bit words that cover every number in use so far.
  size_t live_words() const { return live_words_.load(std::memory_order_acquire); }
  uint64_t LiveWord(size_t word) const { return LoadWord(live_.words() + word); }
  Owner owner(HolderId holder) const;
  // Increases whenever a number is assigned.
  uint64_t assignments() const { return assignments_.load(std::memory_order_acquire); }

  // ---- the writer ----
  std::optional<HolderId> Find(IndexedWorker worker, CacheTier tier) const;
  // nullopt if all numbers are in use.
  std::optional<HolderId> FindOrAdd(IndexedWorker worker, CacheTier tier);
  // Retires the worker's numbers and returns them.
  std::vector<HolderId> Retire(IndexedWorker worker);
  bool IsRetired(HolderId holder) const;
  bool has_retired() const { return !retired_.empty(); }
  // Number of retired holders. Recycle makes the first `count` of them available again. REQUIRES:
  // nothing in the index names them.
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
  size_t given_ = 0;  // numbers below it were assigned at least once
};

}  // namespace baton
