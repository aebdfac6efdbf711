// Small model of tests/testdata/models on a device, with a Llama runner.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "model/gguf/gguf_reader.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_runner.h"
#include "model/llama/llama_weights.h"
#include "tests/model/counting_device.h"
#include "tests/model/model_files.h"

namespace baton {

// A model on a device.
struct TinyModel {
  explicit TinyModel(const std::string& name, int threads = 2, bool asynchronous = false)
      : TinyModel(*GgufFile::Open(TinyModelPath(name)), threads, asynchronous) {}
  TinyModel(std::unique_ptr<GgufFile> opened, int threads, bool asynchronous = false,
            InstructionSet instruction_set = BestInstructionSet())
      : TinyModel(std::move(opened), *CreateCpuDevice({.threads = threads,
                                                       .instruction_set = instruction_set,
                                                       .asynchronous = asynchronous})) {}
  TinyModel(std::unique_ptr<GgufFile> opened, std::unique_ptr<Device> on)
      : file(std::move(opened)),
        config(*ReadLlamaConfig(*file)),
        device(std::move(on)),
        weights(*LlamaWeights::Load(*file, config, *device, nullptr)) {}

  std::unique_ptr<GgufFile> file;
  LlamaConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<LlamaWeights> weights;
};

struct TinyPool {
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  KvType type = KvType::kF16;
  int32_t block_size = 16;
  bool paged = true;
  bool graph = true;
  std::vector<int32_t> graph_buckets = {};
  StepLimits limits = {
      .max_tokens = 128, .max_sequences = 16, .max_logit_rows = 64, .max_context = 128};
};

// Pool of a model's KV groups. Each group has `blocks` blocks plus a scratch block.
inline KvPoolLayout TinyPoolLayout(const TinyModel& model, const TinyPool& pool, int64_t blocks) {
  KvCacheSpec kv = model.config.Kv();
  for (KvGroupSpec& group : kv.groups) group.type = pool.type;
  const std::vector<int64_t> num_blocks(kv.groups.size(), blocks + 1);
  return *KvPoolLayout::Create(kv, pool.layout, pool.block_size, num_blocks);
}

// Runner with a block table for each sequence and KV group. The blocks are scattered over the pool,
// or contiguous. As in the cache, a window's table has no blocks before its first token's window.
class TinyRunner {
 public:
  static constexpr int32_t kSequences = 16;

  // `weights`: of the same model, for runners of another kind; null: a LlamaRunner.
  TinyRunner(const TinyModel& model, const TinyPool& pool, const ModelWeights* weights = nullptr)
      : device(*model.device),
        blocks_each_(pool.limits.max_context / pool.block_size),
        window_(pool.paged ? model.config.window : 0),
        layout_(TinyPoolLayout(model, pool, int64_t{kSequences} * blocks_each_)),
        memory_(*model.device->Allocate(static_cast<size_t>(layout_.pool_bytes()), "pool")) {
    ModelRunnerOptions options;
    options.limits = pool.limits;
    options.paged = pool.paged;
    options.graph = pool.graph;
    options.graph_buckets = pool.graph_buckets;
    Device& on = model.device->asynchronous() ? *model.device : device;
    if (weights != nullptr) {
      runner = *weights->CreateRunner(layout_, memory_->data(), options);
    } else {
      runner =
          *LlamaRunner::Create(model.config, *model.weights, layout_, memory_->data(), on, options);
    }
    for (int32_t s = 0; s < kSequences; ++s) {
      for (int32_t i = 0; i < blocks_each_; ++i) {
        const auto scattered = [&](int32_t by) {
          return BlockId(pool.paged ? i * kSequences + (s * by + i * 5) % kSequences
                                    : s * blocks_each_ + i);
        };
        tables_[s].push_back(scattered(7));
        window_tables_[s].push_back(scattered(11));
      }
    }
  }

  StepChunk Chunk(int32_t sequence, std::span<const TokenId> tokens, int32_t begin,
                  int32_t logit_rows) {
    StepChunk chunk{.tokens = tokens,
                    .begin_slot = begin,
                    .begin_position = begin,
                    .block_table = tables_[sequence],
                    .logit_rows = logit_rows};
    if (layout_.groups() > 1) {
      std::vector<BlockId>& table = shown_tables_.emplace_back(window_tables_[sequence]);
      const int32_t dead = window_ == 0 ? 0 : std::max(0, begin - window_ + 1);  // slots
      std::fill_n(table.begin(), dead / layout_.block_size(), kNoBlock);
      chunk.window_tables[0] = table;
    }
    return chunk;
  }
  absl::Status Run(const StepInput& input) {
    StepInput step = input;
    for (StepChunk& chunk : step.chunks) chunk.keeps_logits = true;
    ASSIGN_OR_RETURN(last_step, RunStep(*runner, step));
    return absl::OkStatus();
  }
  std::vector<float> Row(int32_t row) const {
    const auto logits = runner->Logits(last_step, row);
    return {logits.begin(), logits.end()};
  }
  // Returns the logits of each of the last `count` tokens. Prefills in chunks, then computes one
  // token at a time.
  std::vector<std::vector<float>> Decode(int32_t sequence, std::span<const TokenId> tokens,
                                         int32_t count, int32_t chunk) {
    std::vector<std::vector<float>> rows;
    const auto total = static_cast<int32_t>(tokens.size());
    for (int32_t begin = 0; begin < total;) {
      const int32_t prompt = total - count + 1;
      const int32_t size = begin < prompt ? std::min(chunk, prompt - begin) : 1;
      const bool last = begin + size >= prompt;
      StepInput input;
      input.chunks.push_back(Chunk(sequence, tokens.subspan(begin, size), begin, last ? 1 : 0));
      EXPECT_TRUE(Run(input).ok());
      if (last) rows.push_back(Row(0));
      begin += size;
    }
    return rows;
  }

  // The group's part of the pool, for tests that overwrite it.
  std::span<std::byte> part(int32_t group) {
    return {memory_->data() + layout_.offset(group),
            static_cast<size_t>(layout_.group(group).pool_bytes())};
  }
  const KvPoolLayout& layout() const { return layout_; }
  // Returns block `index` of the sequence in the window group.
  BlockId WindowBlock(int32_t sequence, int32_t index) const {
    return window_tables_[sequence][index];
  }

  CountingDevice device;
  std::unique_ptr<ModelRunner> runner;
  StepId last_step;

 private:
  const int32_t blocks_each_;
  const int32_t window_;  // 0: tables keep all blocks
  const KvPoolLayout layout_;
  const std::unique_ptr<DeviceBuffer> memory_;
  std::vector<BlockId> tables_[kSequences];
  std::vector<BlockId> window_tables_[kSequences];
  std::deque<std::vector<BlockId>> shown_tables_;  // tables that chunks refer to
};

inline std::vector<TokenId> TinyTokens(int32_t count, int32_t seed) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + seed * 101 + i * i) % 320);
  return tokens;
}

// Copies the blocks of one sequence for another one between two steps. The second step must read
// what the first one wrote. REQUIRES: blocks of 16 tokens.
inline void ExpectCopiesRunBetweenSteps(TinyRunner& runner) {
  const std::vector<TokenId> tokens = TinyTokens(20, 15);
  const auto submit = [&](int32_t sequence, int32_t begin) {
    StepInput input;
    input.chunks.push_back(runner.Chunk(sequence, std::span(tokens).subspan(begin), begin, 1));
    input.chunks.back().keeps_logits = true;
    return *runner.runner->Submit(input);
  };
  const StepId first = submit(0, 0);
  const auto from = runner.Chunk(0, tokens, 0, 0).block_table;
  const auto to = runner.Chunk(1, tokens, 0, 0).block_table;
  const std::vector<BlockCopy> copies = {{.from = from[0], .to = to[0], .tokens = 16},
                                         {.from = from[1], .to = to[1], .tokens = 3}};
  ASSERT_TRUE(runner.runner->CopyBlocks(copies).ok());
  const StepId second = submit(1, 19);  // reads the copy of the first step's KV
  const auto logits = [&](StepId step) {
    EXPECT_TRUE(runner.runner->Collect(step).ok());
    const auto row = runner.runner->Logits(step, 0);
    return std::vector<float>(row.begin(), row.end());
  };
  const std::vector<float> expected = logits(first);
  EXPECT_EQ(logits(second), expected);
}

}  // namespace baton
