#include "cache/index/block_table.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

constexpr uint64_t kLeastBuckets = 8;
constexpr uint64_t kEntriesPerBucket = 6;  // of 7 places: fuller than that, the table grows

uint64_t BucketsFor(size_t entries) {
  return std::max<uint64_t>(kLeastBuckets, entries / kEntriesPerBucket + 1);
}

}  // namespace

BlockTable::BlockTable(size_t max_entries)
    : max_entries_(max_entries),
      max_buckets_(BucketsFor(max_entries)),
      regions_{ReservedMemory(max_buckets_ * kBucketWords * 8),
               ReservedMemory(max_buckets_ * kBucketWords * 8)},
      state_(kLeastBuckets << 1) {
  CHECK_GE(max_entries, 1u);
  CHECK_LE(max_entries, size_t{1} << 30);
}

uint64_t* BlockTable::HomeOf(Key key) {
  return words() + (key.tag * buckets() >> kTagBits) * kBucketWords;
}

uint64_t* BlockTable::NextOf(uint64_t* bucket) { return Next(words(), buckets(), bucket); }

void BlockTable::Place(uint64_t* words, uint64_t buckets, uint64_t tag, uint8_t fingerprint,
                       uint64_t word) {
  uint64_t* bucket = words + (tag * buckets >> kTagBits) * kBucketWords;
  while (true) {
    const uint64_t head = *bucket;
    if (const uint64_t free = PlacesOf(head, 0); free != 0) {
      const int place = PlaceIndex(free);
      StoreWord(bucket + 1 + place, word);
      StoreWord(bucket, head | uint64_t{fingerprint} << 8 * place);
      return;
    }
    // Before the entry itself, so that whoever could have seen the entry goes on to it.
    if (head >> kPassedShift != kMostPassed)
      StoreWord(bucket, head + (uint64_t{1} << kPassedShift));
    bucket = Next(words, buckets, bucket);
  }
}

void BlockTable::Insert(Key key, BlockLocation at) {
  CHECK_LT(entries_, max_entries_);
  if (entries_ >= buckets() * kEntriesPerBucket) {
    Rebuild(std::min(max_buckets_, buckets() * 4 / 3 + 1));
  }
  Place(words(), buckets(), key.tag, key.fingerprint, Pack(key.tag, at));
  ++entries_;
}

uint64_t* BlockTable::Locate(Key key, BlockLocation at, uint64_t** bucket) {
  const uint64_t word = Pack(key.tag, at);
  for (*bucket = HomeOf(key);; *bucket = NextOf(*bucket)) {
    const uint64_t head = **bucket;
    for (uint64_t places = PlacesOf(head, key.fingerprint); places != 0; places &= places - 1) {
      uint64_t* const entry = *bucket + 1 + PlaceIndex(places);
      if (*entry == word) return entry;
    }
    CHECK_NE(head >> kPassedShift, 0u) << "an entry of the block table is missing";
  }
}

void BlockTable::Erase(Key key, BlockLocation at) {
  uint64_t* bucket;
  uint64_t* const entry = Locate(key, at, &bucket);
  const auto place = static_cast<int>(entry - bucket - 1);
  StoreWord(bucket, *bucket & ~(uint64_t{255} << 8 * place));
  --entries_;
  // Now that the entry is gone, nobody needs to pass the buckets before it.
  for (uint64_t* passed = HomeOf(key); passed != bucket; passed = NextOf(passed)) {
    if (*passed >> kPassedShift != kMostPassed) {
      StoreWord(passed, *passed - (uint64_t{1} << kPassedShift));
    }
  }
  if (buckets() > 64 && entries_ < buckets()) Rebuild(BucketsFor(entries_ * 2));
}

void BlockTable::Move(Key key, BlockLocation from, BlockLocation to) {
  uint64_t* bucket;
  StoreWord(Locate(key, from, &bucket), Pack(key.tag, to));
}

void BlockTable::Rebuild(uint64_t new_buckets) {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  const uint64_t next = (state & 1) ^ 1;
  const uint64_t* const old = words();
  for (const uint64_t* bucket = old; bucket != old + buckets() * kBucketWords;
       bucket += kBucketWords) {
    for (int place = 0; place < kPlaces; ++place) {
      const auto fingerprint = static_cast<uint8_t>(bucket[0] >> 8 * place);
      if (fingerprint == 0) continue;
      const uint64_t word = bucket[1 + place];
      Place(regions_[next].words(), new_buckets, word >> kLocationBits, fingerprint, word);
    }
  }
  const uint64_t rebuilds = (state >> 32) + 1;
  state_.store(rebuilds << 32 | new_buckets << 1 | next, std::memory_order_release);
  regions_[state & 1].Discard();
}

}  // namespace baton
