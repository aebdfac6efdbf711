// A model that depends on its KV. The next token follows from the chain of all slots before it,
// read through the block table. So a wrong, stale or shared block changes the output. With sliding
// windows, it expects the same chain in every slot of a window that it sees.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "scheduler/scheduler.h"

namespace baton {

class FakeModel {
 public:
  explicit FakeModel(const KvCacheManager* cache)
      : cache_(cache), block_size_(cache->options().block_size) {
    for (int32_t group = 0; group < cache->groups(); ++group) {
      slots_.emplace_back(size_t(cache->num_blocks(group)) * block_size_);
    }
  }

  static uint64_t Chain(uint64_t before, TokenId token) {
    uint64_t x = (before ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15ull;
    return x ^ (x >> 29);
  }
  static TokenId Next(uint64_t chain) { return static_cast<TokenId>(chain % 50); }
  // The expected output, computed without a cache.
  static std::vector<TokenId> Continuation(CacheNamespace space, std::vector<TokenId> tokens,
                                           int32_t length) {
    const size_t prompt = tokens.size();
    uint64_t chain = space.low();
    for (const TokenId token : tokens) chain = Chain(chain, token);
    while (static_cast<int32_t>(tokens.size()) < length) {
      tokens.push_back(Next(chain));
      chain = Chain(chain, tokens.back());
    }
    return std::vector<TokenId>(tokens.begin() + prompt, tokens.end());
  }

  // Writes slots [begin, begin + count) after reading the slot before. Returns the next token.
  TokenId Compute(SequenceId id, CacheNamespace space, std::span<const TokenId> tokens,
                  int32_t begin, int32_t count) {
    uint64_t chain = begin == 0 ? space.low() : Slot(id, begin - 1);
    for (int32_t i = begin; i < begin + count; ++i) {
      chain = Chain(chain, tokens[i]);
      Slot(id, i) = chain;
      for (int32_t group = 1; group < cache_->groups(); ++group) {
        EXPECT_NE(cache_->BlockTable(id, group)[i / block_size_], kNoBlock);
        Slot(id, i, group) = chain;
        ExpectWindow(id, group, space, tokens, i);
      }
    }
    return Next(chain);
  }
  // Writes what a transfer writes: slots [begin, begin + count), for windows only slots that have
  // blocks.
  TokenId Land(SequenceId id, CacheNamespace space, std::span<const TokenId> tokens, int32_t begin,
               int32_t count) {
    uint64_t chain = begin == 0 ? space.low() : Slot(id, begin - 1);
    for (int32_t i = begin; i < begin + count; ++i) {
      chain = Chain(chain, tokens[i]);
      for (int32_t group = 0; group < cache_->groups(); ++group) {
        if (cache_->BlockTable(id, group)[i / block_size_] != kNoBlock) Slot(id, i, group) = chain;
      }
    }
    return Next(chain);
  }

  // Checks that every committed slot has the chain of the tokens before it.
  void ExpectKv(SequenceId id, CacheNamespace space, std::span<const TokenId> tokens) {
    uint64_t chain = space.low();
    for (int32_t i = 0; i < cache_->committed(id); ++i) {
      chain = Chain(chain, tokens[i]);
      ASSERT_EQ(Slot(id, i), chain) << "sequence " << id << " slot " << i;
    }
    for (int32_t group = 1; group < cache_->groups(); ++group) {
      ExpectWindow(id, group, space, tokens, cache_->committed(id));
    }
  }

 private:
  uint64_t& Slot(SequenceId id, int32_t slot, int32_t group = 0) {
    const BlockId block = cache_->BlockTable(id, group)[slot / block_size_];
    return slots_[group][size_t(block.value()) * block_size_ + slot % block_size_];
  }
  // Checks the slots before `at` that the token at `at` sees.
  void ExpectWindow(SequenceId id, int32_t group, CacheNamespace space,
                    std::span<const TokenId> tokens, int32_t at) {
    uint64_t chain = space.low();
    for (int32_t slot = 0; slot < at; ++slot) {
      chain = Chain(chain, tokens[slot]);
      if (slot <= at - cache_->options().windows[group - 1].window) continue;
      ASSERT_NE(cache_->BlockTable(id, group)[slot / block_size_], kNoBlock)
          << "sequence " << id << " group " << group << " slot " << slot;
      ASSERT_EQ(Slot(id, slot, group), chain)
          << "sequence " << id << " group " << group << " slot " << slot;
    }
  }

  const KvCacheManager* cache_;
  int32_t block_size_;
  std::vector<std::vector<uint64_t>> slots_;  // by group
};

}  // namespace baton
