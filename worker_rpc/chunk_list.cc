#include "worker_rpc/chunk_list.h"

#include "absl/strings/str_format.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {

v1::ListChunksResponse ChunksToWire(const std::string& worker_id,
                                    std::span<const ChunkCache::EntryInfo> chunks,
                                    const EngineStatus& status) {
  v1::ListChunksResponse list;
  list.set_worker_id(worker_id);
  *list.mutable_cache() = PoolToWire(status).chunk_cache();
  list.set_bytes_per_block(status.bytes_per_block);
  for (const ChunkCache::EntryInfo& chunk : chunks) {
    v1::CachedChunk& wire = *list.add_chunks();
    wire.set_key(absl::StrFormat("%016x%016x", chunk.key.hash.high, chunk.key.hash.low));
    wire.set_tokens(chunk.tokens);
    wire.set_blocks(chunk.blocks);
    wire.set_position(chunk.position);
    wire.set_references(chunk.references);
    wire.set_uses(chunk.uses);
    wire.set_age_ms(chunk.age_us / 1000);
    wire.set_idle_ms(chunk.idle_us / 1000);
    wire.set_host_bytes(chunk.host_bytes);
  }
  return list;
}

}  // namespace baton
