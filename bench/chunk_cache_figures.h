// Figures of the chunk cache inside an engine: the time to find and to place cached chunks, and the
// memory of requests that share them.
//
// Thread safety: pure functions of an engine that no other thread asks.
#pragma once

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/chunk_prompts.h"
#include "bench/figure_list.h"
#include "bench/goal_figures.h"
#include "bench/timed_requests.h"
#include "common/status_macros.h"
#include "engine/engine.h"

namespace baton {

// Adds lookup_us and place_us: the prompt's chunks are cached among `entries` entries.
inline absl::Status MeasureLookup(Engine& engine, ChunkPrompts& prompts, int32_t entries, int runs,
                                  FigureList& figures) {
  constexpr CacheNamespace kNamespace{2};
  constexpr int32_t kSmallChunk = 16;
  RETURN_IF_ERROR(engine.ClearCache(std::nullopt).status());
  RETURN_IF_ERROR(AskTimed(engine, GreedyRequest(prompts.Chunked({}), 1, kNamespace)).status());
  const int32_t missing = entries - engine.Status().chunk_cache.entries;
  ChunkedPrompt filler = prompts.Chunked({});
  filler.chunks.clear();
  for (int32_t i = 0; i < missing; ++i) filler.chunks.push_back(prompts.Tokens(kSmallChunk));
  if (missing > 0) RETURN_IF_ERROR(AskTimed(engine, GreedyRequest(filler, 1, kNamespace)).status());
  std::vector<double> lookup_us;
  std::vector<double> place_us;
  for (int run = 0; run < runs; ++run) {
    ASSIGN_OR_RETURN(const TimedAnswer answer,
                     AskTimed(engine, GreedyRequest(prompts.Chunked({}), 1, kNamespace)));
    const ChunkLedger& ledger = answer.ledger.chunk;
    if (ledger.hits != prompts.shape().chunks) {
      return absl::InternalError(absl::StrCat("only ", ledger.hits, " of ", prompts.shape().chunks,
                                              " chunks were cached"));
    }
    lookup_us.push_back(static_cast<double>(ledger.lookup_us));
    place_us.push_back(static_cast<double>(ledger.place_us));
  }
  const int32_t held = engine.Status().chunk_cache.entries;
  AddMedian(figures, "lookup_us", lookup_us, "us", AtMost(999))["entries"] = held;
  AddMedian(figures, "place_us", place_us, "us", AtMost(9'999))["tokens"] =
      prompts.shape().all_chunk_tokens();
  return absl::OkStatus();
}

// Adds shared_bytes_ratio: KV bytes that `requests` concurrent requests hold, divided by those of
// the distinct tokens with KV: system part, chunks, and each question with its answer so far.
inline absl::Status MeasureSharedBytes(Engine& engine, ChunkPrompts& prompts, int32_t requests,
                                       FigureList& figures) {
  constexpr CacheNamespace kNamespace{3};
  constexpr int32_t kAnswerTokens = 128;
  RETURN_IF_ERROR(engine.ClearCache(std::nullopt).status());
  RETURN_IF_ERROR(AskTimed(engine, GreedyRequest(prompts.Chunked({}), 1, kNamespace)).status());
  std::vector<std::future<absl::StatusOr<TimedAnswer>>> running;
  for (int32_t i = 0; i < requests; ++i) {
    running.push_back(
        StartTimed(engine, GreedyRequest(prompts.Chunked({}), kAnswerTokens, kNamespace)));
  }
  std::optional<double> ratio;
  int64_t bytes = 0;
  // All requests are measured while they answer, or none is.
  while (!ratio.has_value()) {
    const EngineInspection now = engine.Inspect();
    const bool answer =
        std::all_of(now.sequences.begin(), now.sequences.end(), [&](const auto& sequence) {
          return sequence.phase == "running" && sequence.tokens > prompts.shape().question_tokens;
        });
    if (static_cast<int32_t>(now.sequences.size()) < requests) break;
    if (!answer) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    const KvCacheStats& cache = now.status.cache;
    const int64_t held = cache.blocks.total - cache.blocks.free - cache.evictable;
    int64_t tokens = prompts.shape().prefix_tokens();
    for (const SequenceInspection& sequence : now.sequences) tokens += sequence.committed;
    ratio = static_cast<double>(held * now.status.block_size) / static_cast<double>(tokens);
    bytes = held * now.status.bytes_per_block;
  }
  for (auto& one : running) RETURN_IF_ERROR(one.get().status());
  if (!ratio.has_value()) {
    figures.AddAbsent("shared_bytes_ratio", "ratio", "a request ended before all answered");
    return absl::OkStatus();
  }
  AddMedian(figures, "shared_bytes_ratio", {*ratio}, "ratio", AtMost(1.05))["bytes"] = bytes;
  return absl::OkStatus();
}

}  // namespace baton
