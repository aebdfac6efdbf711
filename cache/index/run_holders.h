// Who holds which blocks of a run: intervals [begin, end) of positions for each holder, a holder
// being a small number that the index gives to a (worker, tier).
//
// Intervals, because a run never has to be cut when somebody holds only a part of it: a tail that
// is evicted moves an end, a gap makes two intervals of one. Few entries lie in the run itself.
// Many are wide: a chunk of their own with one bit for each holder of the whole run and entries for
// the others (coverage sets and partial holders are SMG's ChainIndex's; that one cuts runs at
// gaps).
//
// A wide run:  word 1: chunk's line | entries << 32 | words of bits << 48
//              its chunk, after the head: the bits, then the entries, two in a word
//
// Invariants: the intervals of one holder in one run neither overlap nor touch; in a wide run the
// holders of everything are bits, never entries.
//
// Thread safety: one writer. Readers use WideView and InlineEntry between two equal heads
// (run_store.h, invariant 2).
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
  uint32_t end = 0;  // 1 to 254: stored as the last position in 8 bits

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
  // More entries than this and a run should be split where most of them end: every match of the run
  // reads them all.
  static constexpr int kCrowded = 16;

  // All of a run's holders, away from readers.
  struct Image {
    std::vector<uint64_t> whole;  // a bit for each holder of the whole run
    std::vector<HolderEntry> parts;
    void AddWhole(HolderId holder);
    // What it says of positions [begin, end) of a run of `length`, as a run of its own.
    Image Cut(uint32_t length, uint32_t begin, uint32_t end) const;
    // Removes every holder for which gone(HolderId) holds; true when there was one.
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

  // `store` must outlive this.
  explicit RunHolders(RunStore* store) : store_(store) {}

  // ---- any thread ----
  // REQUIRES: i < head.entries() <= kMaxInline.
  static HolderEntry InlineEntry(const uint64_t* run, int i) {
    return HolderEntry::Unpack(static_cast<uint32_t>(LoadWord(run + 1 + i / 2) >> 32 * (i % 2)));
  }
  // REQUIRES: `word1` is the first word after the head of a run that was wide when it was read.
  static WideView Wide(const RunStore& store, uint64_t word1) {
    const uint64_t* const words = store.Words(static_cast<uint32_t>(word1)) + 1;
    const size_t bit_words = word1 >> 48;
    return {.bits = words,
            .bit_words = bit_words,
            .entry_words = words + bit_words,
            .entries = static_cast<int>(word1 >> 32 & 0xffff)};
  }

  // ---- the writer; a line is that of a run, and end <= its length ----
  // Blocks that the holder did not hold before; nothing changes and `refused` counts them when
  // there is no memory for it.
  uint32_t Add(uint32_t line, HolderId holder, uint32_t begin, uint32_t end, uint64_t* refused);
  // Blocks that it held until now. When there is no memory for what is left of its intervals, they
  // go too, and `refused` counts them.
  uint32_t Remove(uint32_t line, HolderId holder, uint32_t begin, uint32_t end, uint64_t* refused);

  // Publishes a new run whose hashes are written, all held by one holder.
  void Start(uint32_t line, uint32_t length, HolderId holder);

  const Image& Load(uint32_t line);  // valid until the next call of this object
  // Sets the run's length and holders in one step for readers. False, and nothing changed, when
  // there is no memory.
  bool Store(uint32_t line, uint32_t length, const Image& image);
  // Frees the run's chunk and what its holders had beside it.
  void FreeRun(uint32_t line);

  // One past the last block that anybody holds; 0 when nobody does.
  uint32_t HeldEnd(uint32_t line) const;
  // Memberships in the run; its length when somebody holds all of a wide one.
  uint32_t HeldAtLeast(uint32_t line) const;
  bool IsCrowded(uint32_t line) const;

 private:
  using Intervals = absl::InlinedVector<HolderEntry, 4>;

  uint32_t AddAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                     uint64_t* refused);
  uint32_t RemoveAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                        uint64_t* refused);
  void SetInlineEntry(uint32_t line, int i, HolderEntry entry);
  // Takes the holder's intervals out of image_.
  Intervals Take(HolderId holder, uint32_t length);
  void Put(const HolderEntry& entry, uint32_t length);
  bool StoreInline(uint32_t line, uint32_t length, const Image& image);
  bool StoreWide(uint32_t line, uint32_t length, const Image& image);
  WideView WideOf(uint32_t line) const { return Wide(*store_, store_->Words(line)[1]); }

  RunStore* const store_;
  Image image_;
};

}  // namespace baton
