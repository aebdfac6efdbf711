// MachineBench with the parts of chunked prompts, for tests of their transfers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cache/chunk_layout.h"
#include "engine/chunk_tier.h"
#include "engine/prompt_parts.h"
#include "tests/engine/chunked_prompt.h"
#include "tests/engine/fake_chunk_mover.h"
#include "tests/engine/machine_bench.h"

namespace baton {

struct PartsBench : MachineBench {
  // `host_bytes`: for chunks that sleep; their copies are jobs of `mover`.
  explicit PartsBench(int64_t host_bytes = 0)
      : tier({.host_bytes = host_bytes,
              .bytes_per_block = kBytesPerBlock,
              .max_falling_blocks = 100},
             &cache, &mover, &clock) {}

  // A system part of 6 tokens, chunks of 9 and 4, and a question of 3, in blocks of 4.
  static ChunkedPrompt TwoChunks() { return PromptOf("system", {"a chunk 9", "more"}, "who"); }

  SequenceSpec Add(SequenceId main, const ChunkedPrompt& prompt, PromptParts::Use use) {
    layout = *prompt_parts.Plan(prompt, CacheNamespace(0), /*own_tokens=*/16);
    prompt_parts.Add(main, layout, 0, use);
    return {.id = main,
            .tokens = prompt.question,
            .cache_namespace = layout->derived_namespace,
            .max_tokens = 16,
            .part_blocks = layout->BlocksOfParts(4)};
  }
  // Plans a step and commits it at once.
  SchedulerOutput StepWithParts() {
    SchedulerOutput plan = Step();
    for (const ScheduledChunk& chunk : plan.chunks) prompt_parts.OnComputed(chunk, {});
    return plan;
  }
  void End(SequenceId main) {
    if (scheduler.Contains(main)) scheduler.Finish(main, /*keep_cached=*/true);
    prompt_parts.End(main);
  }

  static constexpr int64_t kBytesPerBlock = 100;
  FakeChunkMover mover{kBytesPerBlock};
  ChunkTier tier;
  PromptParts prompt_parts{
      {.cache = {.share = 0.5}, .piece_tokens = 256}, &cache, &scheduler, &clock, &tier};
  std::shared_ptr<const ChunkLayout> layout;  // of the prompt added last
};

}  // namespace baton
