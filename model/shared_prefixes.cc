#include "model/shared_prefixes.h"

#include <algorithm>

namespace baton {
namespace {

// The number of times kSharedSlots that two chunks share.
int32_t SharedGroups(const ChunkPrefix& a, const ChunkPrefix& b, int32_t block_size) {
  const int32_t most = std::min(a.slots, b.slots) / kSharedSlots;
  if (most == 0 || a.table.front() != b.table.front()) return 0;
  const int32_t blocks = (most * kSharedSlots + block_size - 1) / block_size;
  const auto end = std::mismatch(a.table.begin(), a.table.begin() + blocks, b.table.begin()).first;
  const auto equal = static_cast<int32_t>(end - a.table.begin());
  return static_cast<int32_t>(std::min<int64_t>(most, int64_t{equal} * block_size / kSharedSlots));
}

}  // namespace

std::vector<int32_t> SharedSegmentsOf(std::span<const ChunkPrefix> chunks, int32_t block_size) {
  const size_t count = chunks.size();
  // shared[i]: of chunks i − 1 and i. saved[i]: the most groups that chunks [0, i) can save.
  // first[i]: the first chunk of the set that then ends with chunk i − 1.
  std::vector<int32_t> shared(count, 0);
  std::vector<int64_t> saved(count + 1, 0);
  std::vector<size_t> first(count + 1, 0);
  int32_t rows = 0;
  for (size_t i = 0; i < count; ++i) {
    rows += chunks[i].rows;
    if (i > 0) shared[i] = SharedGroups(chunks[i - 1], chunks[i], block_size);
    saved[i + 1] = saved[i];
    first[i + 1] = i;
    int32_t least = shared[i];
    for (size_t begin = i; begin > 0 && least > 0; least = std::min(least, shared[begin])) {
      --begin;
      const int64_t with = saved[begin] + static_cast<int64_t>(i - begin) * least;
      if (with > saved[i + 1]) {
        saved[i + 1] = with;
        first[i + 1] = begin;
      }
    }
  }
  std::vector<int32_t> segments(static_cast<size_t>(rows), 0);
  auto row = static_cast<std::ptrdiff_t>(segments.size());
  for (size_t end = count; end > 0; end = first[end]) {
    const size_t begin = first[end];
    std::ptrdiff_t own = 0;
    for (size_t i = begin; i < end; ++i) own += chunks[i].rows;
    row -= own;
    if (end - begin < 2) continue;
    const int32_t least = *std::min_element(shared.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                                            shared.begin() + static_cast<std::ptrdiff_t>(end));
    // The first row has 0: it shares nothing with the row before it.
    std::fill_n(segments.begin() + row + 1, own - 1, least * kT1GroupSegments);
  }
  return segments;
}

}  // namespace baton
