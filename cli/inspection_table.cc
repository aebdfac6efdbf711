#include "cli/inspection_table.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/printable_text.h"

namespace baton {
namespace {

constexpr const char* kEventNames[] = {"match", "reserve", "insert", "evict", "release"};

void AddPool(const EngineInspection& inspection, std::string& out) {
  const KvCacheStats& cache = inspection.status.cache;
  absl::StrAppendFormat(&out, "op path: %s\n", Printable(inspection.op_path));
  absl::StrAppendFormat(
      &out,
      "pool: %d blocks of %d tokens: %d free (%d never used), %d cached (%d evictable), %d owned, "
      "%d in flight, %d of steps; %d bytes resident\n",
      cache.blocks.total, inspection.status.block_size, cache.blocks.free, cache.blocks.never_used,
      cache.blocks.cached, cache.evictable, cache.blocks.owned, cache.blocks.in_transfer,
      cache.blocks.step, inspection.resident_pool_bytes);
  const PoolSize& pool = inspection.status.pool;
  absl::StrAppendFormat(
      &out, "size: limit %d blocks, %d reserved, %d retiring, %d retired or never in the pool\n",
      pool.limit, pool.reserved, pool.retiring, pool.reserved - pool.limit - pool.retiring);
  const int64_t unused = cache.reserved_slots - cache.committed_slots;
  absl::StrAppendFormat(&out, "fragmentation: %d of %d reserved slots not yet filled (%.1f %%)\n",
                        unused, cache.reserved_slots,
                        cache.reserved_slots > 0 ? 100.0 * static_cast<double>(unused) /
                                                       static_cast<double>(cache.reserved_slots)
                                                 : 0.0);
  absl::StrAppendFormat(&out,
                        "prefix cache: %d lookups, %d hits (%.1f %%), %d of %d tokens reused (%.1f "
                        "%%); %d blocks with "
                        "%d tokens evicted; %d nodes, %d deep\n",
                        cache.lookups, cache.hits, 100 * cache.request_hit_rate(), cache.hit_tokens,
                        cache.lookup_tokens, 100 * cache.token_reuse_rate(), cache.evicted_blocks,
                        cache.evicted_tokens, cache.radix_nodes, inspection.cache_depth);
}

// Adds the KV groups of a model with windows. Group 0 is the pool above.
void AddGroups(const EngineInspection& inspection, std::string& out) {
  const std::vector<KvGroupStatus>& groups = inspection.status.groups;
  for (size_t at = 1; at < groups.size(); ++at) {
    const KvGroupStatus& group = groups[at];
    absl::StrAppendFormat(
        &out,
        "group %d: window of %d tokens, %d layers: %d blocks of %d bytes: %d free (%d never used), "
        "%d cached (%d evictable), %d owned, %d in flight, %d of steps; limit %d, %d reserved, %d "
        "retiring; %d evicted\n",
        at, group.window, group.layers, group.blocks.total, group.bytes_per_block,
        group.blocks.free, group.blocks.never_used, group.blocks.cached, group.evictable,
        group.blocks.owned, group.blocks.in_transfer, group.blocks.step, group.size.limit,
        group.size.reserved, group.size.retiring, group.evicted_blocks);
  }
}

// Shows a run of entries without a block by its length.
std::string WindowTable(const std::vector<int32_t>& blocks) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < blocks.size();) {
    size_t end = i;
    while (end < blocks.size() && blocks[end] < 0) ++end;
    if (end > i) {
      shown.push_back(absl::StrFormat("-x%d", end - i));
      i = end;
    } else {
      shown.push_back(absl::StrFormat("%d", blocks[i++]));
    }
  }
  return absl::StrJoin(shown, " ");
}

void AddSequences(const EngineInspection& inspection, std::string& out) {
  for (const SequenceInspection& sequence : inspection.sequences) {
    absl::StrAppendFormat(
        &out,
        "sequence %d (%s): %s, priority %d, %d tokens, %d committed, %d matched, blocks [%s]\n",
        sequence.sequence_id, Printable(sequence.request_id), Printable(sequence.phase),
        sequence.priority, sequence.tokens, sequence.committed, sequence.matched,
        absl::StrJoin(sequence.blocks, " "));
    for (size_t at = 0; at < sequence.window_blocks.size(); ++at) {
      absl::StrAppendFormat(&out, "  group %d: blocks [%s]\n", at + 1,
                            WindowTable(sequence.window_blocks[at]));
    }
  }
}

void AddTrace(const EngineInspection& inspection, std::string& out) {
  absl::StrAppendFormat(&out, "allocation trace (%d events)\n  %-8s %10s %8s %8s %8s\n",
                        inspection.trace.size(), "event", "sequence", "tokens", "blocks", "free");
  for (const AllocationEvent& event : inspection.trace) {
    absl::StrAppendFormat(&out, "  %-8s %10d %8d %8d %8d%s\n",
                          kEventNames[static_cast<int>(event.kind)], event.sequence.value(),
                          event.tokens, event.blocks, event.free_after,
                          event.group == 0 ? "" : absl::StrFormat("  group %d", event.group));
  }
}

}  // namespace

std::string InspectionTable(const EngineInspection& inspection) {
  std::string out;
  AddPool(inspection, out);
  AddGroups(inspection, out);
  AddSequences(inspection, out);
  AddTrace(inspection, out);
  return out;
}

}  // namespace baton
