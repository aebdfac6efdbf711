// Stores which holders have which blocks of a run, as intervals [begin, end) of positions for each
// holder. A holder is a small number that the index assigns to a (worker, tier).
//
// With intervals, a run need not be split when a holder has only a part of it. Evicting a tail
// moves an end, and a gap splits one interval into two. A few entries are stored inline in the run.
// A run with many holders is wide. It has a separate chunk, with one bit for each holder of the
// whole run and entries for the other holders. Coverage sets and partial holders are from SMG's
// ChainIndex, which splits runs at gaps.
//
// A wide run:  word 1: chunk's line | entries << 32 | words of bits << 48
//              its chunk, after the header: the bits, then the entries, two in a word
//
// Invariants: the intervals of one holder in one run neither overlap nor touch. In a wide run,
// holders of the whole run are bits, never entries.
//
// Thread safety: one writer. Readers use WideView and InlineEntry between two reads of equal
// headers (run_store.h, invariant 2).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "cache/index/run_store.h"

namespace baton {

using HolderId = uint16_t;

struct HolderEntry {
  HolderId holder = 0;
  uint32_t begin = 0;
  uint32_t end = 0;  // 1 to 254; stored as the last position in 8 bits

  static HolderEntry Unpack(uint32_t packed) {
    return {.holder = static_cast<HolderId>(packed >> 16),
            .begin = packed >> 8 & 255,
            .end = (packed & 255) + 1};
  }
  uint32_t Pack() const { return uint32_t{holder} << 16 | begin << 8 | (end - 1); }
  bool operator==(const HolderEntry&) const = default;
};

class RunHolders {
 public:
  // A run with more entries should be split where most of them end, because every match of the run
  // reads all entries.
  static constexpr int kCrowded = 16;

  // Copy of all holders of a run, not visible to readers.
  struct Image {
    std::vector<uint64_t> whole;  // one bit for each holder of the whole run
    std::vector<HolderEntry> parts;
    void AddWhole(HolderId holder);
    // The holders of positions [begin, end) of a run of `length`, as for a separate run.
    Image Cut(uint32_t length, uint32_t begin, uint32_t end) const;
    // Removes every holder for which gone(HolderId) is true. Returns true if it removed one.
    template <typename Gone>
    bool RemoveIf(const Gone& gone) {
      bool any = std::erase_if(parts, [&](const HolderEntry& e) { return gone(e.holder); }) > 0;
      for (size_t w = 0; w < whole.size(); ++w) {
        for (uint64_t bits = whole[w]; bits != 0; bits &= bits - 1) {
          if (!gone(static_cast<HolderId>(w * 64 + std::countr_zero(bits)))) continue;
          whole[w] &= ~(bits & -bits);
          any = true;
        }
      }
      return any;
    }
  };

  struct WideView {
    const uint64_t* bits;
    size_t bit_words;
    const uint64_t* entry_words;
    int entries;
    HolderEntry entry(int i) const {
      return HolderEntry::Unpack(
          static_cast<uint32_t>(LoadWord(entry_words + i / 2) >> 32 * (i % 2)));
    }
  };

  // REQUIRES: `store` outlives this object.
  explicit RunHolders(RunStore* store) : store_(store) {}

  // ---- any thread ----
  // REQUIRES: i < head.entries() <= kMaxInline.
  static HolderEntry InlineEntry(const uint64_t* run, int i) {
    return HolderEntry::Unpack(static_cast<uint32_t>(LoadWord(run + 1 + i / 2) >> 32 * (i % 2)));
  }
  // REQUIRES: `word1` is the first word after the header of a run that was wide when it was read.
  static WideView Wide(const RunStore& store, uint64_t word1) {
    const uint64_t* const words = store.Words(static_cast<uint32_t>(word1)) + 1;
    const size_t bit_words = word1 >> 48;
    return {.bits = words,
            .bit_words = bit_words,
            .entry_words = words + bit_words,
            .entries = static_cast<int>(word1 >> 32 & 0xffff)};
  }

  // ---- the writer; `line` is the first line of a run, and end <= its length ----
  // Returns the number of blocks that the holder did not hold before. If there is no memory,
  // nothing changes, and `refused` is increased by that number.
  uint32_t Add(uint32_t line, HolderId holder, uint32_t begin, uint32_t end, uint64_t* refused);
  // Returns the number of blocks that the holder no longer holds. If there is no memory for the
  // rest of its intervals, they are removed too, and `refused` is increased by their blocks.
  uint32_t Remove(uint32_t line, HolderId holder, uint32_t begin, uint32_t end, uint64_t* refused);

  // Publishes a new run whose hashes are written. One holder holds all of it.
  void Start(uint32_t line, uint32_t length, HolderId holder);

  const Image& Load(uint32_t line);  // valid until the next call of this object
  // Sets the run's length and holders in one step for readers. Returns false and changes nothing if
  // there is no memory.
  bool Store(uint32_t line, uint32_t length, const Image& image);
  // Frees the run's chunk, and the chunk of its holders if it is wide.
  void FreeRun(uint32_t line);

  // One past the last held block; 0 if no block is held.
  uint32_t HeldEnd(uint32_t line) const;
  // Memberships in the run. For a wide run with a holder of the whole run, the run's length.
  uint32_t HeldAtLeast(uint32_t line) const;
  bool IsCrowded(uint32_t line) const;

 private:
  using Intervals = absl::InlinedVector<HolderEntry, 4>;

  uint32_t AddAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                     uint64_t* refused);
  uint32_t RemoveAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                        uint64_t* refused);
  void SetInlineEntry(uint32_t line, int i, HolderEntry entry);
  // Removes the holder's intervals from image_ and returns them.
  Intervals Take(HolderId holder, uint32_t length);
  void Put(const HolderEntry& entry, uint32_t length);
  bool StoreInline(uint32_t line, uint32_t length, const Image& image);
  bool StoreWide(uint32_t line, uint32_t length, const Image& image);
  WideView WideOf(uint32_t line) const { return Wide(*store_, store_->Words(line)[1]); }

  RunStore* const store_;
  Image image_;
};

}  // namespace baton
