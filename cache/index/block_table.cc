#include "cache/index/block_table.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
BlockTable::BlockTable(size_t max_entries)
    : max_entries_(max_entries),
      max_buckets_(BucketsFor(max_entries)),
      regions_{ReservedMemory(max_buckets_ * kBucketWords * 8),
               ReservedMemory(max_buckets_ * kBucketWords * 8)},
      state_(BucketsFor(0) << 1) {
  CHECK_GE(max_entries, 1u);
  CHECK_LE(max_entries, size_t{1} << 30);
}

uint64_t* BlockTable::Locate(Key key, BlockLocation at, uint64_t** bucket) {
  const uint64_t word = Pack(key.tag, at);
  const View now = view();
  *bucket = words() + (now.Home(key) - now.words);
  while (true) {
    const uint64_t head = **bucket;
    for (uint64_t places = PlacesOf(head, key.fingerprint); places != 0; places &= places - 1) {
      uint64_t* const entry = *bucket + 1 + PlaceIndex(places);
      if (*entry == word) return entry;
    }
    CHECK_NE(head >> kPassedShift, 0u) << "an entry of the block table is missing";
    *bucket = Next(words(), now.buckets(), *bucket);
  }
}

void BlockTable::Erase(Key key, BlockLocation at) {
  uint64_t* bucket;
  uint64_t* const entry = Locate(key, at, &bucket);
  const auto place = static_cast<int>(entry - bucket - 1);
  StoreWord(bucket, *bucket & ~(uint64_t{255} << 8 * place));
  --entries_;
  // Now that the entry is gone, nobody needs to pass the buckets before it.
  const View now = view();
  uint64_t* passed = words() + (now.Home(key) - now.words);
  for (; passed != bucket; passed = Next(words(), now.buckets(), passed)) {
    if (*passed >> kPassedShift != kMostPassed) {
      StoreWord(passed, *passed - (uint64_t{1} << kPassedShift));
    }
  }
}

void BlockTable::Move(Key key, BlockLocation from, BlockLocation to) {
  uint64_t* bucket;
  StoreWord(Locate(key, from, &bucket), Pack(key.tag, to));
}

void BlockTable::Grow(size_t entries) {
  CHECK_LE(entries, max_entries_);
  Rebuild(std::min(max_buckets_, std::max(BucketsFor(entries), buckets() * 3 / 2)));
}

void BlockTable::Shrink() { Rebuild(BucketsFor(entries_ * 2)); }

void BlockTable::Rebuild(uint64_t new_buckets) {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  const uint64_t next = (state & 1) ^ 1;
  const uint64_t* const old = words();
  uint64_t* const to = regions_[next].words();
  for (const uint64_t* bucket = old; bucket != old + buckets() * kBucketWords;
       bucket += kBucketWords) {
    for (int place = 0; place < kPlaces; ++place) {
      const auto fingerprint = static_cast<uint8_t>(bucket[0] >> 8 * place);
      if (fingerprint == 0) continue;
      const uint64_t word = bucket[1 + place];
      uint64_t* const home =
          to + ((word >> kLocationBits) * new_buckets >> kTagBits) * kBucketWords;
      Place(to, new_buckets, home, fingerprint, word);
    }
  }
  const uint64_t rebuilds = (state >> 32) + 1;
  state_.store(rebuilds << 32 | new_buckets << 1 | next, std::memory_order_release);
  regions_[state & 1].Discard();
}

}  // namespace baton
