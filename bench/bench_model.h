// Real model with a runner and a pool of sequences, for benchmarks that measure whole steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/block_copy.h"
#include "common/check.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "model/architecture.h"

namespace baton {

class BenchModel {
 public:
  // Allocates `sequences` sequences of `context` slots each, in consecutive blocks. The model must
  // have one KV group, because the computed limits do not account for sliding windows.
  BenchModel(const LoadedModel& model, EngineOptions options, int32_t sequences, int32_t context)
      : options_(std::move(options)) {
    if (!options_.paged) options_.layout = KvLayoutKind::kLayerMajor;
    SettleForDevice(options_, *model.device);
    const ModelSpec& spec = model.info.spec;
    CHECK_EQ(spec.kv.groups.size(), 1u) << "models with sliding windows are not supported";
    blocks_ = (context + options_.block_size - 1) / options_.block_size;
    auto layout = KvLayout::Create(spec.KvOfType(options_.kv_type).groups.front(), options_.layout,
                                   options_.block_size, int64_t{sequences} * blocks_ + 1);
    CHECK(layout.ok()) << layout.status();
    auto pool = model.device->Allocate(layout->pool_bytes(), "KV pool");
    CHECK(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
    ModelRunnerOptions runner;
    runner.limits = {.max_tokens = kChunk,
                     .max_sequences = sequences,
                     .max_logit_rows = sequences,
                     .max_context = context};
    runner.paged = options_.paged;
    runner.graph = options_.graph;
    auto created = model.weights->CreateRunner(*layout, pool_->data(), runner);
    CHECK(created.ok()) << created.status();
    runner_ = std::move(*created);
    tables_.resize(sequences);
    for (int32_t s = 0; s < sequences; ++s) {
      for (int32_t b = 0; b < blocks_; ++b) tables_[s].push_back(BlockId(s * blocks_ + b));
    }
    for (int32_t i = 0; i < context; ++i) tokens_.push_back((i * 7919 + 13) % spec.vocabulary);
  }

  // Computes slots [begin, end) of one sequence in chunks. Only the last slot gets logits.
  void Prefill(int32_t sequence, int32_t begin, int32_t end) {
    for (int32_t at = begin; at < end; at += kChunk) {
      const int32_t count = std::min(kChunk, end - at);
      StepInput input;
      input.chunks.push_back(Chunk(sequence, at, count, at + count == end ? 1 : 0));
      CHECK(RunStep(*runner_, input).ok());
    }
  }

  // Runs one decode step of sequences [0, count), each with next slot `slot`.
  void Decode(int32_t count, int32_t slot) {
    StepInput input;
    for (int32_t s = 0; s < count; ++s) input.chunks.push_back(Chunk(s, slot, 1, 1));
    CHECK(RunStep(*runner_, input).ok());
  }

  // Runs one step that decodes sequences [0, count) at slot `slot`, and computes slots [0, tokens)
  // of sequence `count`.
  void Mixed(int32_t count, int32_t slot, int32_t tokens) {
    StepInput input;
    for (int32_t s = 0; s < count; ++s) input.chunks.push_back(Chunk(s, slot, 1, 1));
    input.chunks.push_back(Chunk(count, 0, tokens, 1));
    CHECK(RunStep(*runner_, input).ok());
  }

  // Copies the first `tokens` slots of a block in all layers, as a fork does for its part-full
  // block before its first write.
  void CopyBlock(BlockId from, BlockId to, int32_t tokens) {
    const BlockCopy copy{.from = from, .to = to, .tokens = tokens};
    CHECK(runner_->CopyBlocks({&copy, 1}).ok());
  }
  int32_t blocks_per_sequence() const { return blocks_; }

 private:
  static constexpr int32_t kChunk = 512;

  StepChunk Chunk(int32_t sequence, int32_t begin, int32_t count, int32_t logit_rows) const {
    return {.tokens = std::span(tokens_).subspan(begin, count),
            .begin_slot = begin,
            .begin_position = begin,
            .block_table = tables_[sequence],
            .logit_rows = logit_rows};
  }

  EngineOptions options_;
  int32_t blocks_ = 0;
  std::unique_ptr<DeviceBuffer> pool_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<TokenId> tokens_;
};

}  // namespace baton
