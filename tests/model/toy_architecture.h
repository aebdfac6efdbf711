// Toy architecture, an example of everything that a new architecture needs. Its next token is a
// hash of all tokens of the sequence, which it reads from its KV pool.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "model/architecture.h"
#include "model/inline_runner.h"

namespace baton {

inline constexpr int32_t kToyVocabulary = 320;

// Returns the token that follows `tokens`.
inline TokenId ToyNext(std::span<const TokenId> tokens) {
  int64_t sum = 7;
  for (const TokenId token : tokens) sum = (31 * sum + token) % 1'000'003;
  return static_cast<TokenId>(sum % kToyVocabulary);
}

class ToyRunner final : public InlineRunner {
 public:
  ToyRunner(const KvLayout& layout, std::byte* pool) : layout_(layout), pool_(pool) {}

  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      std::memcpy(pool_ + layout_.PieceOffset(0, /*value=*/false, copy.to.value()),
                  pool_ + layout_.PieceOffset(0, /*value=*/false, copy.from.value()),
                  copy.tokens * layout_.token_stride() * sizeof(float));
    }
    return absl::OkStatus();
  }

 protected:
  absl::Status Run(const StepInput& input) override {
    logits_.clear();
    for (const StepChunk& chunk : input.chunks) {
      const auto count = static_cast<int32_t>(chunk.tokens.size());
      for (int32_t i = 0; i < count; ++i) {
        const auto cell = static_cast<float>(chunk.tokens[i]);
        std::memcpy(Cell(chunk, chunk.begin_slot + i), &cell, sizeof(cell));
      }
      for (int32_t i = count - chunk.logit_rows; i < count; ++i) {
        logits_.emplace_back(kToyVocabulary, 0.0f)[ToyNext(Read(chunk, chunk.begin_slot + i + 1))] =
            1.0f;
      }
    }
    return absl::OkStatus();
  }
  std::span<const float> LogitsOf(int32_t row) const override { return logits_[row]; }

 private:
  std::byte* Cell(const StepChunk& chunk, int32_t slot) const {
    const int64_t block = chunk.block_table[slot / layout_.block_size()].value();
    return pool_ + layout_.PieceOffset(0, /*value=*/false, block) +
           slot % layout_.block_size() * layout_.token_stride() * sizeof(float);
  }
  std::vector<TokenId> Read(const StepChunk& chunk, int32_t slots) const {
    std::vector<TokenId> tokens;
    for (int32_t slot = 0; slot < slots; ++slot) {
      float cell;
      std::memcpy(&cell, Cell(chunk, slot), sizeof(cell));
      tokens.push_back(static_cast<TokenId>(cell));
    }
    return tokens;
  }

  const KvLayout layout_;
  std::byte* const pool_;
  std::vector<std::vector<float>> logits_;
};

class ToyWeights final : public ModelWeights {
 public:
  size_t bytes() const override { return 0; }
  ModelCost cost() const override { return {}; }
  absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions&) const override {
    if (layout.group(0).group().type != KvType::kF32) {
      return absl::UnimplementedError("the toy architecture supports only KV type f32");
    }
    return std::make_unique<ToyRunner>(layout.group(0), pools.of(0));
  }
};

class ToyArchitecture final : public Architecture {
 public:
  std::string_view name() const override { return "toy"; }
  absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const override {
    ModelSpec spec{.architecture = "toy", .vocabulary = kToyVocabulary, .layers = 1, .hidden = 1};
    ASSIGN_OR_RETURN(const uint32_t context, file.GetU32("toy.context_length"));
    spec.context_length = static_cast<int32_t>(context);
    spec.kv.groups = {{.layers = 1, .kv_heads = 1, .head_dim = 2}};
    spec.rope = "none";
    return spec;
  }
  absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile&, Device&) const override {
    return std::make_unique<ToyWeights>();
  }
};

}  // namespace baton
