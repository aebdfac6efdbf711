#include "engine/prefix_order.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/shared_prefixes.h"

namespace baton {
namespace {

struct PrefixRow {
  ScheduledChunk chunk;
  std::span<const BlockId> table;
};

// Sorts rows that share the blocks in front of slot `shared`, by what they share behind it.
void SortByPrefix(std::span<PrefixRow> rows, int32_t shared, int32_t block_size) {
  // The block with the last slot that more rows may share. Equal blocks there have equal blocks in
  // front of them, because a cached block belongs to one prefix.
  const int32_t end = shared + kSharedSlots;
  const auto at = static_cast<size_t>((end - 1) / block_size);
  absl::flat_hash_map<BlockId, size_t> first;    // row with this block
  std::vector<std::pair<size_t, size_t>> order;  // key and old place
  bool any = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t key = i;
    if (!rows[i].chunk.framed && rows[i].chunk.begin >= end) {
      const auto [found, is_new] = first.try_emplace(rows[i].table[at], i);
      key = found->second;
      any = any || !is_new;
    }
    order.emplace_back(key, i);
  }
  if (!any) return;
  std::sort(order.begin(), order.end());
  std::vector<PrefixRow> sorted;
  sorted.reserve(rows.size());
  for (const auto& [key, place] : order) sorted.push_back(rows[place]);
  std::move(sorted.begin(), sorted.end(), rows.begin());
  for (size_t i = 0; i < rows.size();) {
    size_t next = i + 1;
    while (next < rows.size() && order[next].first == order[i].first) ++next;
    if (next - i > 1) SortByPrefix(rows.subspan(i, next - i), end, block_size);
    i = next;
  }
}

}  // namespace

void PutSharedPrefixesTogether(const KvCacheManager& cache, SchedulerOutput& plan) {
  std::vector<PrefixRow> rows;
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (chunk.count != 1) break;
    rows.push_back({.chunk = chunk, .table = cache.BlockTable(chunk.id)});
  }
  SortByPrefix(rows, 0, cache.options().block_size);
  for (size_t i = 0; i < rows.size(); ++i) plan.chunks[i] = rows[i].chunk;
}

}  // namespace baton
