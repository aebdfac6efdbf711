#include "cli/chunk_table_client.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "common/printable_text.h"

namespace baton {

const char kChunkColumnsHelp[] =
    "Columns:\n"
    "  key           128-bit hash of everything that the KV depends on\n"
    "  position      position at which the first token was computed\n"
    "  refs          requests that use the chunk now\n"
    "  uses          how often a request found the chunk\n"
    "  age           seconds since the chunk was stored\n"
    "  idle          seconds since the chunk was last stored or found\n"
    "  tier          device; or host, for a chunk that sleeps in host memory\n"
    "\n"
    "Sleeping chunks come first. In each tier, the least recently used chunk comes first. A system "
    "part is\nlisted if its last block is not full. Its full blocks belong to the prefix cache.";

namespace {

const char* TierOf(const v1::CachedChunk& chunk) {
  return chunk.host_bytes() > 0 ? "host" : "device";
}

}  // namespace

std::string ChunkTable(const v1::ListChunksResponse& list) {
  constexpr double kMiB = 1 << 20;
  std::string text = absl::StrFormat("%-32s %7s %7s %9s %5s %7s %10s %10s %7s\n", "key", "tokens",
                                     "blocks", "position", "refs", "uses", "age", "idle", "tier");
  int64_t host_bytes = 0;
  int sleeping = 0;
  for (const v1::CachedChunk& chunk : list.chunks()) {
    absl::StrAppendFormat(&text, "%-32s %7d %7d %9d %5d %7d %10.1f %10.1f %7s\n",
                          std::string(Printable(chunk.key())), chunk.tokens(), chunk.blocks(),
                          chunk.position(), chunk.references(), chunk.uses(),
                          static_cast<double>(chunk.age_ms()) / 1000,
                          static_cast<double>(chunk.idle_ms()) / 1000, TierOf(chunk));
    host_bytes += chunk.host_bytes();
    sleeping += chunk.host_bytes() > 0 ? 1 : 0;
  }
  const v1::ChunkCacheStatus& cache = list.cache();
  absl::StrAppendFormat(
      &text, "%d chunks in %d of %d blocks (%.1f of %.1f MiB)\n", list.chunks_size() - sleeping,
      cache.used_blocks(), cache.budget_blocks(),
      static_cast<double>(cache.used_blocks()) * static_cast<double>(list.bytes_per_block()) / kMiB,
      static_cast<double>(cache.budget_blocks()) * static_cast<double>(list.bytes_per_block()) /
          kMiB);
  if (sleeping > 0 || cache.sleeping_limit_bytes() > 0) {
    absl::StrAppendFormat(&text, "sleeping in host memory: %d (%.1f of %.1f MiB)\n", sleeping,
                          static_cast<double>(host_bytes) / kMiB,
                          static_cast<double>(cache.sleeping_limit_bytes()) / kMiB);
  }
  return text;
}

std::string ChunksAsJson(const v1::ListChunksResponse& list) {
  nlohmann::ordered_json chunks = nlohmann::ordered_json::array();
  for (const v1::CachedChunk& chunk : list.chunks()) {
    chunks.push_back({{"key", chunk.key()},
                      {"tokens", chunk.tokens()},
                      {"blocks", chunk.blocks()},
                      {"position", chunk.position()},
                      {"references", chunk.references()},
                      {"uses", chunk.uses()},
                      {"age_ms", chunk.age_ms()},
                      {"idle_ms", chunk.idle_ms()},
                      {"tier", TierOf(chunk)},
                      {"host_bytes", chunk.host_bytes()}});
  }
  const nlohmann::ordered_json json = {
      {"worker", list.worker_id()},
      {"budget_blocks", list.cache().budget_blocks()},
      {"used_blocks", list.cache().used_blocks()},
      {"bytes_per_block", list.bytes_per_block()},
      {"sleeping_limit_bytes", list.cache().sleeping_limit_bytes()},
      {"chunks", std::move(chunks)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace baton
