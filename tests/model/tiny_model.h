// The small models of tests/testdata/models, whole or with one thing changed, and a runner over
// one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "model/gguf_reader.h"
#include "model/llama_config.h"
#include "model/llama_runner.h"
#include "model/llama_weights.h"
#include "tests/model/counting_device.h"
#include "tests/model/gguf_builder.h"

namespace baton {

inline std::string TinyModelPath(const std::string& name) {
  return std::string(BATON_TESTDATA) + "/models/tiny-" + name + ".gguf";
}

// A copy of a model file without some keys and tensors, to which others may be added.
inline GgufBuilder CopyModel(const GgufFile& file, const std::set<std::string>& without) {
  GgufBuilder builder;
  for (const std::string_view key : file.keys()) {
    if (without.contains(std::string(key))) continue;
    const GgufValue& value = *file.Find(key);
    const std::string bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
    if (value.type == GgufValueType::kString) {
      builder.String(key, bytes);
    } else if (value.type == GgufValueType::kArray) {
      builder.Array(key, value.element_type, value.count, bytes);
    } else {
      builder.Key(key, value.type, bytes);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (without.contains(std::string(tensor.name))) continue;
    builder.Tensor(tensor.name,
                   {tensor.dimensions.begin(), tensor.dimensions.begin() + tensor.dimension_count},
                   tensor.type,
                   {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
  }
  return builder;
}

// A model on a device.
struct TinyModel {
  explicit TinyModel(const std::string& name, int threads = 2, bool asynchronous = false)
      : TinyModel(*GgufFile::Open(TinyModelPath(name)), threads, asynchronous) {}
  TinyModel(std::unique_ptr<GgufFile> opened, int threads, bool asynchronous = false)
      : file(std::move(opened)),
        config(*ReadLlamaConfig(*file)),
        device(*CreateCpuDevice({.threads = threads, .asynchronous = asynchronous})),
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

// A runner whose sequences have tables of their own: scattered over the pool, or one run each.
class TinyRunner {
 public:
  static constexpr int32_t kSequences = 16;

  TinyRunner(const TinyModel& model, const TinyPool& pool)
      : device(*model.device),
        blocks_each_(pool.limits.max_context / pool.block_size),
        layout_(*KvLayout::Create({.layers = model.config.layers,
                                   .kv_heads = model.config.kv_heads,
                                   .head_dim = model.config.head_dim,
                                   .type = pool.type},
                                  pool.layout, pool.block_size,
                                  int64_t{kSequences} * blocks_each_ + 1)),
        memory_(*model.device->Allocate(static_cast<size_t>(layout_.pool_bytes()), "pool")) {
    LlamaRunnerOptions options;
    options.limits = pool.limits;
    options.paged = pool.paged;
    options.graph = pool.graph;
    options.graph_buckets = pool.graph_buckets;
    Device& on = model.device->asynchronous() ? *model.device : device;
    runner =
        *LlamaRunner::Create(model.config, *model.weights, layout_, memory_->data(), on, options);
    for (int32_t s = 0; s < kSequences; ++s) {
      for (int32_t i = 0; i < blocks_each_; ++i) {
        const int32_t scattered = (i * kSequences + (s * 7 + i * 5) % kSequences);
        tables_[s].push_back(BlockId(pool.paged ? scattered : s * blocks_each_ + i));
      }
    }
  }

  StepChunk Chunk(int32_t sequence, std::span<const TokenId> tokens, int32_t begin,
                  int32_t logit_rows) const {
    return {.tokens = tokens,
            .begin_slot = begin,
            .begin_position = begin,
            .block_table = tables_[sequence],
            .logit_rows = logit_rows};
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
  // Logits behind each of the last `count` tokens: a prefill in chunks, then one at a time.
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

  CountingDevice device;
  std::unique_ptr<LlamaRunner> runner;
  StepId last_step;

 private:
  const int32_t blocks_each_;
  const KvLayout layout_;
  const std::unique_ptr<DeviceBuffer> memory_;
  std::vector<BlockId> tables_[kSequences];
};

inline std::vector<TokenId> TinyTokens(int32_t count, int32_t seed) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 37 + seed * 101 + i * i) % 320);
  return tokens;
}

}  // namespace baton
