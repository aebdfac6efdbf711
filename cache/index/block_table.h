// The index's hash table. It maps a block's key to the place of its hash. It stores no hash itself,
// so the caller compares all 128 bits at that place.
//
// A bucket is one cache line of eight words. The first word has seven fingerprint bytes, and counts
// of the entries that wanted this bucket but went on to a later one. Each of the other seven words
// is an entry: 29 bits of the key and 35 bits of location. So nearly every lookup reads one cache
// line. A miss ends at the first bucket with a zero count, without tombstones. The idea is F14's
// (Bronson and Shi, 2019). This table has four counts of two bits, selected by fingerprint, so few
// misses read a second bucket. The home bucket is tag * buckets >> kTagBits. So any number of
// buckets works, and a rebuild walks both tables in order.
//
// Invariants:
//  1. An entry moves between publication and erasure only in a rebuild. Readers notice a rebuild by
//     `state`. So a lookup finds every entry that exists during the whole lookup.
//  2. A bucket has at most 3.25 entries on average, of seven. A full bucket costs a second cache
//     line and a mispredicted branch. With 5 entries for each bucket, one insertion in six met a
//     full bucket, and these took a quarter of the index's time. With 3.25 it is one in thirty, for
//     7 more bytes for each entry.
//
// Thread safety: one writer; lookups on any thread. A reader takes a View, uses it, and then calls
// IsCurrent. If that is false, a rebuild discarded the memory, and the reader must ignore the
// results.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/index/reserved_memory.h"

namespace baton {

// Place of a block's hash: a run (its first cache line in the arena) and the position in it.
struct BlockLocation {
  uint32_t line = 0;    // < 2^27
  uint32_t offset = 0;  // < 256

  bool operator==(const BlockLocation&) const = default;
};

class BlockTable {
 public:
  static constexpr int kTagBits = 29;

  // The table's view of a hash: 64 evenly distributed bits.
  struct Key {
    explicit Key(uint64_t bits)
        : tag(bits >> (64 - kTagBits)),
          fingerprint((bits & 0xff) == 0 ? 1 : static_cast<uint8_t>(bits)) {}
    uint64_t tag;
    uint8_t fingerprint;  // never 0, because 0 marks a free place
  };

  struct View {
    const uint64_t* words = nullptr;
    uint64_t state = 0;
    uint64_t buckets() const { return BucketsOf(state); }
    const uint64_t* Home(Key key) const {
      return words + (key.tag * buckets() >> kTagBits) * kBucketWords;
    }
  };

  // Allocates memory for `expected` entries at once and keeps it. The table grows up to
  // max_entries. REQUIRES: 1 <= max_entries <= 2^30, expected <= max_entries.
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

  // Returns the location for which is_it(location) is true. `is_it` is rarely called for another
  // hash's location. If an entry moves to another location meanwhile, both locations are tried.
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
  // Makes room, so that the next `more` insertions cause no rebuild. REQUIRES: entries() + more <=
  // max_entries.
  void Reserve(size_t more) {
    if (4 * (entries_ + more) > buckets() * kEntriesInFourBuckets) Grow(entries_ + more);
    if (stuck_ > most_stuck_) Rebuild(buckets());
  }
  // A series of insertions or erasures. entries() is correct again when it is destroyed. REQUIRES:
  // nothing else changes the table during its life.
  class Row;
  // Releases memory if few entries are left. Call it some time after erasing.
  void ShrinkIfSparse() {
    if (buckets() > least_buckets_ && entries_ < buckets()) Shrink();
  }
  // Changes an entry's location in one step for readers. REQUIRES: (key, from) is in the table.
  void Move(Key key, BlockLocation from, BlockLocation to);

  size_t entries() const { return entries_; }
  size_t max_entries() const { return max_entries_; }
  size_t bytes() const { return buckets() * kBucketWords * 8; }

 private:
  static constexpr int kPlaces = 7;
  static constexpr uint64_t kEntriesInFourBuckets = 13;  // the table grows above this
  static constexpr int kBucketWords = 1 + kPlaces;
  static constexpr int kLocationBits = 64 - kTagBits;
  static constexpr int kOffsetBits = 8;
  static constexpr int kPassedShift = 56;
  static constexpr uint64_t kMany = 3;  // three or more; stays so until a rebuild
  static constexpr uint64_t kLowBits = 0x0001010101010101;
  static constexpr uint64_t kHighBits = kLowBits << 7;

  static uint64_t BucketsOf(uint64_t state) { return static_cast<uint32_t>(state) >> 1; }
  // Sets the high bit of every fingerprint byte that equals `value`.
  static uint64_t PlacesOf(uint64_t head, uint8_t value) {
    constexpr uint64_t kSevenBits = 0x7f7f7f7f7f7f7f7f;
    const uint64_t x = head ^ kLowBits * value;
    return ~(((x & kSevenBits) + kSevenBits) | x) & kHighBits;
  }
  // Number of entries with this kind of fingerprint that went past the bucket.
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
  // Finds an entry, starting at its home bucket. Also returns its bucket.
  static uint64_t* Locate(uint64_t* words, uint64_t buckets, uint64_t* home, uint8_t fingerprint,
                          uint64_t word, uint64_t** bucket);
  static void EraseAnywhere(uint64_t* words, uint64_t buckets, uint64_t* home, uint8_t fingerprint,
                            uint64_t word);
  // Writes to the first free place, starting at a bucket.
  void Place(uint64_t* words, uint64_t buckets, uint64_t* bucket, uint8_t fingerprint,
             uint64_t word);
  void Grow(size_t entries);
  void Shrink();
  void Rebuild(uint64_t new_buckets);

  const size_t max_entries_;
  const uint64_t max_buckets_;
  const uint64_t least_buckets_;  // lower bound for shrinking
  // One of the two is in use; a rebuild fills the other one.
  ReservedMemory regions_[2];
  std::atomic<uint64_t> state_;  // rebuilds << 32 | buckets << 1 | region
  size_t entries_ = 0;
  size_t stuck_ = 0;  // counts that reached kMany
  size_t most_stuck_ = 0;
};

class BlockTable::Row {
 public:
  // REQUIRES: `table` outlives this object.
  explicit Row(BlockTable& table)
      : table_(table), view_(table.view()), words_(table.words()), buckets_(table.buckets()) {}
  ~Row() { table_.entries_ += change_; }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  // Where a key's entries begin. Valid during the row's life.
  uint64_t* HomeOf(Key key) const {
    return words_ + (key.tag * buckets_ >> kTagBits) * kBucketWords;
  }
  // False if there is certainly no entry with this key. The home bucket nearly always decides.
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
