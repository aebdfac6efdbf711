// The index's hash table: a block's key → where its hash is stored. It keeps no hash itself; the
// caller verifies all 128 bits at the place.
//
// Buckets are one cache line: a word with seven fingerprint bytes and counts of the entries that
// wanted this bucket and went on to a later one, then seven entries of 29 bits of the key and 35
// bits of location. So a look-up is one cache line, nearly always, and a miss ends at the first
// bucket whose count is zero, without tombstones (F14's idea, Bronson and Shi, 2019; here with four
// counts of two bits, by fingerprint, so that few misses have to look further).
// The key's upper bits times the number of buckets give the home bucket, so any number of buckets
// will do and a rebuild walks both tables in order.
//
// Invariants:
//  1. An entry never moves between publication and erasure but by a rebuild, which readers notice
//     by `state`. So a look-up finds whatever is there all the time it runs.
//  2. Of seven places 3.25 are taken at most. A full bucket costs a second cache line and a branch
//     that the processor guesses wrong; with 5 entries to a bucket one insertion in six met a full
//     one, and the index spent a quarter of its time on them. With 3.25 it is one in thirty, for 7
//     bytes more an entry.
//
// Thread safety: one writer; look-ups on any thread. A reader takes a View, uses it, and afterwards
// asks IsCurrent: if not, a rebuild took the memory away meanwhile and what was read means nothing.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/index/reserved_memory.h"

namespace baton {

// Where a block's hash is: a run (its first cache line in the arena) and its position there.
struct BlockLocation {
  uint32_t line = 0;    // < 2^27
  uint32_t offset = 0;  // < 256

  bool operator==(const BlockLocation&) const = default;
};

class BlockTable {
 public:
  static constexpr int kTagBits = 29;

  // What the table knows of a hash: 64 evenly distributed bits.
  struct Key {
    explicit Key(uint64_t bits)
        : tag(bits >> (64 - kTagBits)),
          fingerprint((bits & 0xff) == 0 ? 1 : static_cast<uint8_t>(bits)) {}
    uint64_t tag;
    uint8_t fingerprint;  // never 0, which marks a free place
  };

  struct View {
    const uint64_t* words = nullptr;
    uint64_t state = 0;
    uint64_t buckets() const { return BucketsOf(state); }
    const uint64_t* Home(Key key) const {
      return words + (key.tag * buckets() >> kTagBits) * kBucketWords;
    }
  };

  // Takes memory for `expected` entries at once and keeps it; grows up to max_entries.
  // REQUIRES: 1 <= max_entries <= 2^30, expected <= max_entries.
  explicit BlockTable(size_t max_entries, size_t expected = 0);

  // ---- any thread ----
  View view() const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    return {.words = regions_[state & 1].words(), .state = state};
  }
  bool IsCurrent(const View& view) const {
    return state_.load(std::memory_order_acquire) == view.state;
  }
  static void Prefetch(const View& view, Key key) { __builtin_prefetch(view.Home(key)); }

  // The location for which is_it(location) holds. `is_it` is asked of few wrong ones. While an
  // entry is being moved to another location, both are tried.
  template <typename IsIt>
  static std::optional<BlockLocation> Find(const View& view, Key key, const IsIt& is_it) {
    const uint64_t* bucket = view.Home(key);
    for (uint64_t probes = view.buckets(); probes-- > 0;) {
      const uint64_t head = LoadWord(bucket);
      for (uint64_t places = PlacesOf(head, key.fingerprint); places != 0; places &= places - 1) {
        const uint64_t* const entry = bucket + 1 + PlaceIndex(places);
        for (uint64_t word = LoadWord(entry); word >> kLocationBits == key.tag;) {
          if (const BlockLocation at = LocationOf(word); is_it(at)) return at;
          const uint64_t again = LoadWord(entry);
          if (again == word) break;
          word = again;
        }
      }
      if (Passed(head, key.fingerprint) == 0) break;
      bucket = Next(view.words, view.buckets(), bucket);
    }
    return std::nullopt;
  }

  // ---- the writer ----
  // Makes room, so that no rebuild comes in the next `more` insertions. REQUIRES: entries() + more
  // <= max_entries.
  void Reserve(size_t more) {
    if (4 * (entries_ + more) > buckets() * kEntriesInFourBuckets) Grow(entries_ + more);
    if (stuck_ > most_stuck_) Rebuild(buckets());
  }
  // A row of insertions or erasures. entries() is right after it. REQUIRES: nothing else changes
  // the table during its life.
  class Row;
  // Takes memory back when little is left; some time after erasing.
  void ShrinkIfSparse() {
    if (buckets() > least_buckets_ && entries_ < buckets()) Shrink();
  }
  // One step for readers. REQUIRES: (key, from) is in the table.
  void Move(Key key, BlockLocation from, BlockLocation to);

  size_t entries() const { return entries_; }
  size_t max_entries() const { return max_entries_; }
  size_t bytes() const { return buckets() * kBucketWords * 8; }

 private:
  static constexpr int kPlaces = 7;
  static constexpr uint64_t kEntriesInFourBuckets = 13;  // fuller than that, the table grows
  static constexpr int kBucketWords = 1 + kPlaces;
  static constexpr int kLocationBits = 64 - kTagBits;
  static constexpr int kOffsetBits = 8;
  static constexpr int kPassedShift = 56;
  static constexpr uint64_t kMany = 3;  // three or more: stays so until a rebuild
  static constexpr uint64_t kLowBits = 0x0001010101010101;
  static constexpr uint64_t kHighBits = kLowBits << 7;

  static uint64_t BucketsOf(uint64_t state) { return static_cast<uint32_t>(state) >> 1; }
  // The high bit of every fingerprint byte that equals `value`.
  static uint64_t PlacesOf(uint64_t head, uint8_t value) {
    constexpr uint64_t kSevenBits = 0x7f7f7f7f7f7f7f7f;
    const uint64_t x = head ^ kLowBits * value;
    return ~(((x & kSevenBits) + kSevenBits) | x) & kHighBits;
  }
  // How many entries of this fingerprint's kind went past the bucket.
  static int PassedShift(uint8_t fingerprint) { return kPassedShift + 2 * (fingerprint & 3); }
  static uint64_t Passed(uint64_t head, uint8_t fingerprint) {
    return head >> PassedShift(fingerprint) & 3;
  }
  static int PlaceIndex(uint64_t places) { return std::countr_zero(places) >> 3; }
  static uint64_t Pack(uint64_t tag, BlockLocation at) {
    return tag << kLocationBits | uint64_t{at.line} << kOffsetBits | at.offset;
  }
  static BlockLocation LocationOf(uint64_t word) {
    return {.line = static_cast<uint32_t>(word >> kOffsetBits) & ((1u << 27) - 1),
            .offset = static_cast<uint32_t>(word) & 255};
  }
  template <typename Word>
  static Word* Next(Word* words, uint64_t buckets, Word* bucket) {
    bucket += kBucketWords;
    return bucket == words + buckets * kBucketWords ? words : bucket;
  }

  static constexpr uint64_t BucketsFor(size_t entries) {
    return 4 * entries / kEntriesInFourBuckets + 8;
  }
  uint64_t* words() { return regions_[state_.load(std::memory_order_relaxed) & 1].words(); }
  uint64_t buckets() const { return BucketsOf(state_.load(std::memory_order_relaxed)); }
  // An entry, found from its home bucket on, and its bucket.
  static uint64_t* Locate(uint64_t* words, uint64_t buckets, uint64_t* home, uint8_t fingerprint,
                          uint64_t word, uint64_t** bucket);
  static void EraseAnywhere(uint64_t* words, uint64_t buckets, uint64_t* home, uint8_t fingerprint,
                            uint64_t word);
  // Into the first free place from a bucket on.
  void Place(uint64_t* words, uint64_t buckets, uint64_t* bucket, uint8_t fingerprint,
             uint64_t word);
  void Grow(size_t entries);
  void Shrink();
  void Rebuild(uint64_t new_buckets);

  const size_t max_entries_;
  const uint64_t max_buckets_;
  const uint64_t least_buckets_;  // not shrunk below
  // Two, of which one is in use; a rebuild fills the other one.
  ReservedMemory regions_[2];
  std::atomic<uint64_t> state_;  // rebuilds so far << 32 | buckets << 1 | region
  size_t entries_ = 0;
  size_t stuck_ = 0;  // counts that became kMany
  size_t most_stuck_ = 0;
};

class BlockTable::Row {
 public:
  // `table` must outlive this.
  explicit Row(BlockTable& table)
      : table_(table), view_(table.view()), words_(table.words()), buckets_(table.buckets()) {}
  ~Row() { table_.entries_ += change_; }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  // Where a key's entries begin; good during the row's life.
  uint64_t* HomeOf(Key key) const {
    return words_ + (key.tag * buckets_ >> kTagBits) * kBucketWords;
  }
  // False when there is certainly no entry of this key, which the home bucket nearly always says.
  static bool MayHave(const uint64_t* home, Key key) {
    const uint64_t head = *home;
    return (PlacesOf(head, key.fingerprint) | Passed(head, key.fingerprint)) != 0;
  }
  // REQUIRES: room was reserved, and the block is not in the table.
  void Insert(uint64_t* home, Key key, BlockLocation at) {
    const uint64_t head = *home;
    const uint64_t free = PlacesOf(head, 0);
    if (free == 0) [[unlikely]] {
      table_.Place(words_, buckets_, home, key.fingerprint, Pack(key.tag, at));
    } else {
      const int place = PlaceIndex(free);
      StoreWord(home + 1 + place, Pack(key.tag, at));
      StoreWord(home, head | uint64_t{key.fingerprint} << 8 * place);
    }
    ++change_;
  }
  void Prefetch(Key key) const { __builtin_prefetch(HomeOf(key)); }
  // REQUIRES: (key, at) is in the table.
  void Erase(Key key, BlockLocation at) {
    uint64_t* const home = HomeOf(key);
    const uint64_t head = *home;
    --change_;
    if (const uint64_t same = PlacesOf(head, key.fingerprint); same != 0) [[likely]] {
      const int place = PlaceIndex(same);
      if (home[1 + place] == Pack(key.tag, at)) [[likely]] {
        StoreWord(home, head & ~(uint64_t{255} << 8 * place));
        return;
      }
    }
    EraseAnywhere(words_, buckets_, home, key.fingerprint, Pack(key.tag, at));
  }

 private:
  BlockTable& table_;
  const View view_;
  uint64_t* const words_;
  const uint64_t buckets_;
  int64_t change_ = 0;
};

}  // namespace baton
