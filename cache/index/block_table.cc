#include "cache/index/block_table.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
BlockTable::BlockTable(size_t max_entries, size_t expected)
    : max_entries_(max_entries),
      max_buckets_(BucketsFor(max_entries)),
      least_buckets_(std::max<uint64_t>(64, BucketsFor(expected))),
      regions_{ReservedMemory(max_buckets_ * kBucketWords * 8),
               ReservedMemory(max_buckets_ * kBucketWords * 8)},
      state_(BucketsFor(expected) << 1),
      most_stuck_(16 + BucketsFor(expected) / 16) {
  CHECK_GE(max_entries, 1u);
  CHECK_LE(max_entries, size_t{1} << 30);
  CHECK_LE(expected, max_entries);
  regions_[0].Populate(0, bytes());
}

uint64_t* BlockTable::Locate(uint64_t* words, uint64_t buckets, uint64_t* home, uint8_t fingerprint,
                             uint64_t word, uint64_t** bucket) {
  for (*bucket = home;; *bucket = Next(words, buckets, *bucket)) {
    const uint64_t head = **bucket;
    for (uint64_t places = PlacesOf(head, fingerprint); places != 0; places &= places - 1) {
      uint64_t* const entry = *bucket + 1 + PlaceIndex(places);
      if (*entry == word) return entry;
    }
    CHECK_NE(Passed(head, fingerprint), 0u) << "an entry of the block table is missing";
  }
}

void BlockTable::EraseAnywhere(uint64_t* words, uint64_t buckets, uint64_t* home,
                               uint8_t fingerprint, uint64_t word) {
  uint64_t* bucket;
  uint64_t* const entry = Locate(words, buckets, home, fingerprint, word, &bucket);
  StoreWord(bucket, *bucket & ~(uint64_t{255} << 8 * (entry - bucket - 1)));
  // The entry is gone, so it no longer counts as passed in the buckets before it.
  for (uint64_t* passed = home; passed != bucket; passed = Next(words, buckets, passed)) {
    if (Passed(*passed, fingerprint) != kMany) {
      StoreWord(passed, *passed - (uint64_t{1} << PassedShift(fingerprint)));
    }
  }
}

void BlockTable::Place(uint64_t* words, uint64_t buckets, uint64_t* bucket, uint8_t fingerprint,
                       uint64_t word) {
  while (true) {
    const uint64_t head = *bucket;
    if (const uint64_t free = PlacesOf(head, 0); free != 0) {
      const int place = PlaceIndex(free);
      StoreWord(bucket + 1 + place, word);
      StoreWord(bucket, head | uint64_t{fingerprint} << 8 * place);
      return;
    }
    // Before storing the entry, so that no reader stops its lookup here and misses the entry.
    if (const uint64_t passed = Passed(head, fingerprint); passed != kMany) {
      StoreWord(bucket, head + (uint64_t{1} << PassedShift(fingerprint)));
      stuck_ += passed + 1 == kMany;
    }
    bucket = Next(words, buckets, bucket);
  }
}

void BlockTable::Move(Key key, BlockLocation from, BlockLocation to) {
  uint64_t* const home = words() + (key.tag * buckets() >> kTagBits) * kBucketWords;
  uint64_t* bucket;
  uint64_t* const entry =
      Locate(words(), buckets(), home, key.fingerprint, Pack(key.tag, from), &bucket);
  StoreWord(entry, Pack(key.tag, to));
}

void BlockTable::Grow(size_t entries) {
  CHECK_LE(entries, max_entries_);
  Rebuild(std::min(max_buckets_, std::max(BucketsFor(entries), buckets() * 3 / 2)));
}

void BlockTable::Shrink() {
  Rebuild(
      std::clamp(BucketsFor(entries_ * 2), std::min(least_buckets_, max_buckets_), max_buckets_));
}

void BlockTable::Rebuild(uint64_t new_buckets) {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  const uint64_t next = (state & 1) ^ 1;
  const uint64_t* const old = words();
  uint64_t* const to = regions_[next].words();
  regions_[next].Populate(0, new_buckets * kBucketWords * sizeof(uint64_t));
  stuck_ = 0;
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
  most_stuck_ = 2 * stuck_ + new_buckets / 16 + 16;
  const uint64_t rebuilds = (state >> 32) + 1;
  state_.store(rebuilds << 32 | new_buckets << 1 | next, std::memory_order_release);
  regions_[state & 1].Discard();
}

}  // namespace baton
