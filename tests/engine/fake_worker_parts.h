// Fakes for the parts that WorkerCore uses; they detect misuse. The model depends on its KV. The
// transport is in fake_transport.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache_spec.h"
#include "cache/kv_pool_layout.h"
#include "engine/handoff_manifest.h"
#include "engine/request.h"
#include "model/inline_runner.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace baton {

inline constexpr int32_t kFakeVocabulary = 257;  // 256 bytes and the end token
inline constexpr TokenId kEndToken = 256;
inline constexpr int32_t kFakeLayers = 3;  // layers that the runner reports one by one

inline std::unique_ptr<const Tokenizer> MakeByteTokenizer() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  spec.tokens.push_back("<|end|>");
  spec.token_types.assign(256, 1);
  spec.token_types.push_back(3);
  spec.eos = kEndToken;
  return *Tokenizer::Create(spec);
}

inline std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

// A sliding window of the fake model.
struct FakeWindow {
  int32_t window = 0;  // slots
  int32_t num_blocks = 0;
};

// Memory of a KV pool with one number per slot in each KV group: a hash chain over all tokens up to
// the slot.
class ChainPool {
 public:
  ChainPool(int32_t num_blocks, int32_t block_size, const std::vector<FakeWindow>& windows = {})
      : spec_(MakeSpec(windows)),
        layout_(MakeLayout(spec_, num_blocks, block_size, windows)),
        bytes_(static_cast<size_t>(layout_.pool_bytes())) {}

  static uint64_t Chain(uint64_t before, TokenId token) {
    const uint64_t x = (before ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ull + 1;
    return x ^ (x >> 29);
  }

  const KvCacheSpec& spec() const { return spec_; }
  const KvPoolLayout& layout() const { return layout_; }
  int32_t groups() const { return layout_.groups(); }
  int32_t window(int32_t group) const { return spec_.groups[group].window; }
  std::byte* base() { return bytes_.data(); }

  uint64_t Get(BlockId block, int32_t offset, int32_t group = 0) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + Offset(block, offset, group), sizeof(value));
    return value;
  }
  void Set(BlockId block, int32_t offset, uint64_t value, int32_t group = 0) {
    std::memcpy(bytes_.data() + Offset(block, offset, group), &value, sizeof(value));
  }
  std::vector<uint64_t> Slots(BlockId block, int32_t group = 0) const {
    std::vector<uint64_t> slots;
    for (int32_t i = 0; i < layout_.block_size(); ++i) slots.push_back(Get(block, i, group));
    return slots;
  }

 private:
  // One layer per group.
  static KvCacheSpec MakeSpec(const std::vector<FakeWindow>& windows) {
    KvCacheSpec spec;
    spec.groups.push_back({.layers = 1, .kv_heads = 1, .head_dim = 4, .type = KvType::kF32});
    if (!windows.empty()) spec.groups[0].model_layers = {0};
    for (const FakeWindow& window : windows) {
      KvGroupSpec group = spec.groups[0];
      group.kind = KvGroupKind::kSlidingWindow;
      group.window = window.window;
      group.model_layers = {static_cast<int32_t>(spec.groups.size())};
      spec.groups.push_back(group);
    }
    return spec;
  }
  static KvPoolLayout MakeLayout(const KvCacheSpec& spec, int32_t num_blocks, int32_t block_size,
                                 const std::vector<FakeWindow>& windows) {
    std::vector<int64_t> blocks = {num_blocks};
    for (const FakeWindow& window : windows) blocks.push_back(window.num_blocks + 1);
    const auto kind = KvLayoutKind::kBlockMajor;
    return *KvPoolLayout::Create(spec, kind, block_size, blocks)
                ->Recut(kind, block_size, blocks, /*alignment=*/64);
  }
  size_t Offset(BlockId block, int32_t offset, int32_t group) const {
    return static_cast<size_t>(layout_.PieceOffset(group, 0, block.value()) +
                               offset * layout_.group(group).token_stride() * 4);
  }

  const KvCacheSpec spec_;
  const KvPoolLayout layout_;
  std::vector<std::byte> bytes_;
};

// What a token sees of one part of a chunked prompt: all values of the part, and how far from its
// own place it stands.
inline uint64_t DigestOf(const std::vector<uint64_t>& values) {
  uint64_t digest = values.size();
  for (const uint64_t value : values) {
    digest = (digest ^ value) * 0xC2B2AE3D27D4EB4Full;
    digest ^= digest >> 29;
  }
  return digest;
}
inline uint64_t ChainBehindRun(uint64_t before, uint64_t digest, int32_t shift) {
  uint64_t x = before ^ digest;
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ull + static_cast<uint32_t>(shift);
  return x ^ (x >> 27);
}
// Where the chain of a part begins that stands at `position` and sees `seen`.
inline uint64_t ChainOfPart(uint64_t seen, int32_t position) {
  return (seen ^ static_cast<uint32_t>(position)) * 0xFF51AFD7ED558CCDull;
}

// Value of a token that is computed again. `seen`: the parts before its own. `own`: digest of the
// tokens before it in its own part, which stands `shift` beyond the position that its keys count.
inline uint64_t RepairedValue(uint64_t seen, uint64_t own, int32_t position, int32_t shift,
                              TokenId token) {
  const uint64_t chain = ChainOfPart(ChainBehindRun(seen, own, shift), position);
  return ChainPool::Chain(ChainOfPart(chain, position + shift), token);
}

// How much a token changes if it is computed again. Small numbers, so that many are equal.
inline float FakeChange(uint64_t stored, uint64_t computed) {
  return static_cast<float>((stored ^ computed) % 7);
}

// Fake model. The next token depends on the hash chain of all tokens before it, read through the
// block table. If a window does not hold the same chain, the token is wrong. Chunks that are no
// longer wanted are left damaged. A chunk with runs sees the values of each run, the run's shift,
// and its own position.
class FakeRunner final : public InlineRunner {
 public:
  explicit FakeRunner(ChainPool* pool) : pool_(pool) {}

  // Chooses the next token; by default a letter. `length`: number of tokens before it.
  std::function<TokenId(uint64_t chain, int32_t length)> choose = [](uint64_t chain, int32_t) {
    return static_cast<TokenId>('a' + chain % 26);
  };
  absl::Status next_status;                  // returned once, by the next Run
  std::function<void()> during_step;         // runs during the step
  std::function<void()> after_chunk;         // runs when a chunk is half done
  std::optional<TokenId> poison;             // the logits after this token are NaN
  std::vector<std::vector<int32_t>> counts;  // tokens of every chunk of every step
  int64_t copied_blocks = 0;

  absl::Status Run(const StepInput& input) override {
    if (!next_status.ok()) return std::exchange(next_status, absl::OkStatus());
    if (during_step) during_step();
    rows_.clear();
    changes_.clear();
    counts.emplace_back();
    for (int32_t i = 0; i < Wanted(input); ++i) {
      EXPECT_TRUE(i == 0 || !input.chunks[i - 1].compares || input.chunks[i].compares);
      RunChunk(input.chunks[i]);
      if (after_chunk) after_chunk();
    }
    for (int32_t layers = 1; layers <= kFakeLayers && Wanted(input) > 0; ++layers) {
      if (input.kv_written) input.kv_written(layers, Wanted(input));
    }
    for (size_t i = Wanted(input); i < input.chunks.size(); ++i) Spoil(input.chunks[i]);
    return Wanted(input) > 0 ? absl::OkStatus() : absl::CancelledError("abandoned");
  }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      ++copied_blocks;
      for (int32_t i = 0; i < copy.tokens; ++i) {
        pool_->Set(copy.to, i, pool_->Get(copy.from, i, copy.group), copy.group);
      }
    }
    return absl::OkStatus();
  }
  std::vector<float> Changes() const override { return changes_; }
  std::span<const float> LogitsOf(int32_t row) const override {
    return rows_.at(static_cast<size_t>(row));
  }

  std::vector<float> Row(uint64_t chain, int32_t length) const {
    std::vector<float> row(kFakeVocabulary);
    for (int32_t t = 0; t < kFakeVocabulary; ++t) {
      row[t] = static_cast<float>((chain >> (t % 48)) & 7) * 0.125f;
    }
    row[choose(chain, length)] = 4;
    return row;
  }
  // Answer that a greedy request must get, computed without KV.
  std::vector<TokenId> Continuation(const std::vector<TokenId>& prompt, int32_t count) const {
    uint64_t chain = 0;
    for (const TokenId token : prompt) chain = ChainPool::Chain(chain, token);
    std::vector<TokenId> said;
    while (static_cast<int32_t>(said.size()) < count) {
      said.push_back(choose(chain, static_cast<int32_t>(prompt.size() + said.size())));
      chain = ChainPool::Chain(chain, said.back());
    }
    return said;
  }

 private:
  static int32_t Wanted(const StepInput& input) {
    return input.wanted ? input.wanted() : static_cast<int32_t>(input.chunks.size());
  }
  void Spoil(const StepChunk& chunk) {
    if (chunk.compares) return;
    const int32_t block_size = pool_->layout().block_size();
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const int32_t slot =
          chunk.places.empty() ? chunk.begin_slot + static_cast<int32_t>(i) : chunk.places[i].slot;
      for (int32_t group = 0; group < pool_->groups(); ++group) {
        pool_->Set(chunk.table(group)[slot / block_size], slot % block_size, 0xBAD, group);
      }
    }
  }
  void RunChunk(const StepChunk& chunk) {
    counts.back().push_back(static_cast<int32_t>(chunk.tokens.size()));
    const int32_t block_size = pool_->layout().block_size();
    ASSERT_LE(chunk.logit_rows, 1);
    if (!chunk.places.empty()) return RunPlaces(chunk);
    int32_t slot = chunk.begin_slot;
    uint64_t chain = 0;
    if (chunk.runs.empty()) {
      ASSERT_EQ(chunk.begin_slot, chunk.begin_position);
    } else {
      CheckRuns(chunk);
    }
    if (!chunk.runs.empty() && slot == chunk.runs.back().begin) {
      chain = SeenIn(chunk, chunk.runs.first(chunk.runs.size() - 1));
      chain = ChainOfPart(chain, chunk.begin_position);
    } else if (slot > 0) {
      chain = pool_->Get(chunk.block_table[(slot - 1) / block_size], (slot - 1) % block_size);
    }
    for (const TokenId token : chunk.tokens) {
      ASSERT_TRUE(token >= 0 && token < kFakeVocabulary) << token;
      chain = ChainPool::Chain(chain, token);
      ASSERT_LT(slot / block_size, chunk.block_table.size());
      pool_->Set(chunk.block_table[slot / block_size], slot % block_size, chain);
      for (int32_t group = 1; group < pool_->groups(); ++group) {
        if (RunWindow(chunk, slot, chain, group)) continue;
        chain = 0xDA3A6E;  // all tokens from here on are wrong
        pool_->Set(chunk.block_table[slot / block_size], slot % block_size, chain);
      }
      ++slot;
    }
    if (chunk.logit_rows == 0) return;
    // The number of tokens before the next one, or its position behind a frame.
    const int32_t position = chunk.begin_position + slot - chunk.begin_slot;
    rows_.push_back(Row(chain, position));
    if (chunk.tokens.back() == poison) {
      rows_.back()[7] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  uint64_t DigestOfSlots(const StepChunk& chunk, int32_t begin, int32_t end) const {
    const int32_t block_size = pool_->layout().block_size();
    std::vector<uint64_t> values;
    for (int32_t slot = begin; slot < end; ++slot) {
      values.push_back(pool_->Get(chunk.block_table[slot / block_size], slot % block_size));
    }
    return DigestOf(values);
  }
  uint64_t SeenIn(const StepChunk& chunk, std::span<const SlotRun> runs) const {
    uint64_t seen = 0;
    for (const SlotRun& run : runs) {
      seen = ChainBehindRun(seen, DigestOfSlots(chunk, run.begin, run.end), run.position_shift);
    }
    return seen;
  }
  // Rows of a repair.
  void RunPlaces(const StepChunk& chunk) {
    const int32_t block_size = pool_->layout().block_size();
    ASSERT_EQ(chunk.logit_rows, 0);
    ASSERT_EQ(chunk.places.size(), chunk.tokens.size());
    ASSERT_EQ(chunk.positions.size(), chunk.tokens.size());
    for (size_t i = 0; i < chunk.places.size(); ++i) {
      const RowPlace& place = chunk.places[i];
      const SlotRun& own = chunk.runs[place.run];
      ASSERT_TRUE(place.slot >= own.begin && place.slot < own.end);
      ASSERT_TRUE(i == 0 || chunk.places[i - 1].slot < place.slot);
      const uint64_t value = RepairedValue(
          SeenIn(chunk, chunk.runs.first(place.run)), DigestOfSlots(chunk, own.begin, place.slot),
          chunk.positions[i][0], own.position_shift, chunk.tokens[i]);
      const BlockId block = chunk.block_table[place.slot / block_size];
      if (chunk.compares) {
        changes_.push_back(FakeChange(pool_->Get(block, place.slot % block_size), value));
      } else {
        pool_->Set(block, place.slot % block_size, value);
      }
    }
  }

  void CheckRuns(const StepChunk& chunk) const {
    for (const SlotRun& run : chunk.runs) {
      EXPECT_LT(run.begin, run.end);
      EXPECT_EQ(run.tile_origin, run.begin);
      EXPECT_EQ(run.begin % pool_->layout().block_size(), 0);
    }
    EXPECT_EQ(chunk.runs.back().position_shift, 0);
    EXPECT_EQ(chunk.runs.back().end, chunk.begin_slot + static_cast<int32_t>(chunk.tokens.size()));
  }

  // Writes the slot and reads its window. Returns false if the window is damaged, which is allowed
  // after a failed step.
  bool RunWindow(const StepChunk& chunk, int32_t slot, uint64_t chain, int32_t group) {
    const int32_t block_size = pool_->layout().block_size();
    const std::span<const BlockId> table = chunk.table(group);
    bool whole = true;
    for (int32_t seen = std::max(0, slot - pool_->window(group) + 1); seen <= slot; ++seen) {
      const BlockId block = table[seen / block_size];
      EXPECT_NE(block, kNoBlock) << "slot " << slot << " sees slot " << seen
                                 << ", which has no block";
      if (block == kNoBlock) return false;
      if (seen == slot) pool_->Set(block, slot % block_size, chain, group);
      whole &= pool_->Get(block, seen % block_size, group) ==
               pool_->Get(chunk.block_table[seen / block_size], seen % block_size);
    }
    return whole;
  }

  ChainPool* const pool_;
  std::vector<std::vector<float>> rows_;
  std::vector<float> changes_;
};

}  // namespace baton
