// Figures of prompt chunks that sleep in host memory: the time to wake all chunks of a prompt,
// beside the time to compute them, and the memory that they take asleep.
//
// Thread safety: a pure function; it makes engines of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

// Adds wake_us, wake_over_compute (compute time ÷ wake time) and sleeping_bytes_ratio (host memory
// ÷ memory in the pool) for stored and for compressed KV.
inline absl::Status MeasureWakes(EngineOptions options, ChunkPrompts& prompts, int runs,
                                 FigureList& figures) {
  options.chunk_host_mib = 4096;
  options.chunk_sleep_after_s = 0;  // a chunk sleeps as soon as no request uses it
  options.chunk_sleep_uses = 1000;
  for (const bool compress : {false, true}) {
    options.chunk_compress = compress;
    const std::string suffix = compress ? "_compressed" : "";
    ASSIGN_OR_RETURN(const auto engine, Engine::Create(options));
    const auto ask = [&] { return AskTimed(*engine, GreedyRequest(prompts.Chunked({}), 1, {})); };
    const int32_t chunks = prompts.shape().chunks;
    ASSIGN_OR_RETURN(const TimedAnswer cold, ask());
    std::vector<double> wake_us;
    std::vector<double> faster;
    for (int run = 0; run < runs; ++run) {
      while (engine->Status().sleeping_chunks.entries < chunks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSIGN_OR_RETURN(const TimedAnswer woken, ask());
      const ChunkLedger& ledger = woken.ledger.chunk;
      if (ledger.hits != chunks || ledger.wake_us == 0) {
        return absl::InternalError(
            absl::StrCat("only ", ledger.hits, " of ", chunks, " chunks were woken"));
      }
      wake_us.push_back(static_cast<double>(ledger.wake_us));
      faster.push_back(static_cast<double>(cold.ledger.chunk.compute_us) / wake_us.back());
    }
    while (engine->Status().sleeping_chunks.entries < chunks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const EngineStatus status = engine->Status();
    const int64_t in_pool =
        int64_t{chunks} *
        ((prompts.shape().chunk_tokens + status.block_size - 1) / status.block_size) *
        status.bytes_per_block;
    AddMedian(figures, "wake_us" + suffix, wake_us, "us")["tokens"] =
        prompts.shape().all_chunk_tokens();
    AddMedian(figures, "wake_over_compute" + suffix, faster, "ratio");
    AddMedian(figures, "sleeping_bytes_ratio" + suffix,
              {static_cast<double>(status.sleeping_chunks.bytes) / static_cast<double>(in_pool)},
              "ratio");
  }
  return absl::OkStatus();
}

}  // namespace baton
