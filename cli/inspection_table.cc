#include "cli/inspection_table.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/shown_text.h"

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

void AddSequences(const EngineInspection& inspection, std::string& out) {
  for (const SequenceInspection& sequence : inspection.sequences) {
    absl::StrAppendFormat(
        &out,
        "sequence %d (%s): %s, priority %d, %d tokens, %d committed, %d matched, blocks [%s]\n",
        sequence.sequence_id, Printable(sequence.request_id), Printable(sequence.phase),
        sequence.priority, sequence.tokens, sequence.committed, sequence.matched,
        absl::StrJoin(sequence.blocks, " "));
  }
}

void AddTrace(const EngineInspection& inspection, std::string& out) {
  absl::StrAppendFormat(&out, "allocation trace (%d events)\n  %-8s %10s %8s %8s %8s\n",
                        inspection.trace.size(), "event", "sequence", "tokens", "blocks", "free");
  for (const AllocationEvent& event : inspection.trace) {
    absl::StrAppendFormat(&out, "  %-8s %10d %8d %8d %8d\n",
                          kEventNames[static_cast<int>(event.kind)], event.sequence.value(),
                          event.tokens, event.blocks, event.free_after);
  }
}

}  // namespace

std::string InspectionTable(const EngineInspection& inspection) {
  std::string out;
  AddPool(inspection, out);
  AddSequences(inspection, out);
  AddTrace(inspection, out);
  return out;
}

}  // namespace baton
