// The index's hash table: a block's key → where its hash is stored. It keeps no hash itself; the
// caller verifies all 128 bits at the place.
//
// Buckets are one cache line: a word with seven fingerprint bytes and a count of the entries that
// wanted this bucket and went on to a later one, then seven entries of 29 bits of the key and 35
// bits of location. So a look-up is one cache line, nearly always, and a miss ends at the first
// bucket whose count is zero, without tombstones (the idea is that of F14, Bronson and Shi, 2019).
// The key's upper bits times the number of buckets give the home bucket, so any number of buckets
// will do and a rebuild walks both tables in order.
//
// Invariants:
//  1. An entry never moves between publication and erasure but by a rebuild, which readers notice
//  by `state`. So a look-up finds whatever is there all the time it runs.
//  2. At most 5 of 7 places are taken: fuller buckets would send too many entries elsewhere, and
//  every one of them is a branch that the processor guesses wrong.
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

  // REQUIRES: 1 <= max_entries <= 2^30.
  explicit BlockTable(size_t max_entries);

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
      if (head >> kPassedShift == 0) break;
      bucket = Next(view.words, view.buckets(), bucket);
    }
    return std::nullopt;
  }

  // ---- the writer ----
  // Makes room, so that no rebuild comes in the next `more` insertions. REQUIRES: entries() + more
  // <= max_entries.
  void Reserve(size_t more) {
    if (entries_ + more > buckets() * kEntriesPerBucket) Grow(entries_ + more);
  }
  // Inserts unless there is an entry for which is_it(location) holds; true if it did. REQUIRES:
  // room was reserved.
  template <typename IsIt>
  bool InsertIfNew(Key key, BlockLocation at, const IsIt& is_it);
  // REQUIRES: (key, at) is in the table.
  void Erase(Key key, BlockLocation at);
  // Takes memory back when little is left; some time after erasing.
  void ShrinkIfSparse() {
    if (buckets() > kNeverShrunk && entries_ < buckets()) Shrink();
  }
  // One step for readers. REQUIRES: (key, from) is in the table.
  void Move(Key key, BlockLocation from, BlockLocation to);

  size_t entries() const { return entries_; }
  size_t max_entries() const { return max_entries_; }
  size_t bytes() const { return buckets() * kBucketWords * 8; }

 private:
  static constexpr int kPlaces = 7;
  static constexpr uint64_t kEntriesPerBucket = 5;  // fuller than that, the table grows
  static constexpr uint64_t kNeverShrunk = 64;      // buckets
  static constexpr int kBucketWords = 1 + kPlaces;
  static constexpr int kLocationBits = 64 - kTagBits;
  static constexpr int kOffsetBits = 8;
  static constexpr int kPassedShift = 56;
  static constexpr uint64_t kMostPassed = 255;  // stays there until a rebuild
  static constexpr uint64_t kLowBits = 0x0001010101010101;
  static constexpr uint64_t kHighBits = kLowBits << 7;

  static uint64_t BucketsOf(uint64_t state) { return static_cast<uint32_t>(state) >> 1; }
  // The high bit of every fingerprint byte that equals `value`.
  static uint64_t PlacesOf(uint64_t head, uint8_t value) {
    constexpr uint64_t kSevenBits = 0x7f7f7f7f7f7f7f7f;
    const uint64_t x = head ^ kLowBits * value;
    return ~(((x & kSevenBits) + kSevenBits) | x) & kHighBits;
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

  static constexpr uint64_t BucketsFor(size_t entries) { return entries / kEntriesPerBucket + 8; }
  uint64_t* words() { return regions_[state_.load(std::memory_order_relaxed) & 1].words(); }
  uint64_t buckets() const { return BucketsOf(state_.load(std::memory_order_relaxed)); }
  // An entry, and the bucket it is in.
  uint64_t* Locate(Key key, BlockLocation at, uint64_t** bucket);
  // Into the first free place from a bucket on.
  static void Place(uint64_t* words, uint64_t buckets, uint64_t* bucket, uint8_t fingerprint,
                    uint64_t word) {
    while (true) {
      const uint64_t head = *bucket;
      if (const uint64_t free = PlacesOf(head, 0); free != 0) [[likely]] {
        const int place = PlaceIndex(free);
        StoreWord(bucket + 1 + place, word);
        StoreWord(bucket, head | uint64_t{fingerprint} << 8 * place);
        return;
      }
      // Before the entry itself, so that whoever could have seen the entry goes on to it.
      if (head >> kPassedShift != kMostPassed) {
        StoreWord(bucket, head + (uint64_t{1} << kPassedShift));
      }
      bucket = Next(words, buckets, bucket);
    }
  }
  void Grow(size_t entries);
  void Shrink();
  void Rebuild(uint64_t new_buckets);

  const size_t max_entries_;
  const uint64_t max_buckets_;
  // Two, of which one is in use; a rebuild fills the other one.
  ReservedMemory regions_[2];
  std::atomic<uint64_t> state_;  // rebuilds so far << 32 | buckets << 1 | region
  size_t entries_ = 0;
};

template <typename IsIt>
bool BlockTable::InsertIfNew(Key key, BlockLocation at, const IsIt& is_it) {
  const View now = view();
  uint64_t* const table = words();
  uint64_t* const home = table + (now.Home(key) - now.words);
  const uint64_t head = *home;
  // Nearly always all is said by the first bucket.
  if (PlacesOf(head, key.fingerprint) != 0 || head >> kPassedShift != 0) [[unlikely]] {
    if (Find(now, key, is_it)) return false;
  }
  Place(table, now.buckets(), home, key.fingerprint, Pack(key.tag, at));
  ++entries_;
  return true;
}

}  // namespace baton
