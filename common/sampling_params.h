// How a request wants its tokens chosen and where it ends.
//
// Every field has the value that means "as if it had not been given"; a client that leaves a field
// out gets that value, never zero. Names, ranges and meanings follow OpenAI's API where it has the
// field, else vLLM's and llama.cpp's common one. common/request_check.h checks the ranges.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/strong_int.h"

namespace baton {

inline constexpr float kMaxTemperature = 100;
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100;
inline constexpr float kMaxPenalty = 2;      // presence and frequency; the least is -2
inline constexpr float kMaxLogitBias = 100;  // the least is -100
inline constexpr int64_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr int32_t kMaxTopLogprobs = 20;

struct SamplingParams {
  // Divides the logits. 0 … 100; 0 is greedy: the most likely token, lowest id among equals.
  float temperature = 1.0f;
  // Only the so many most likely tokens. >= 0; 0, or the vocabulary's size and more: all.
  int32_t top_k = 0;
  // Only the fewest most likely tokens that hold this share of the probability (after top_k). Above
  // 0, up to 1; 1: all.
  float top_p = 1.0f;
  // Only tokens with at least this share of the most likely one's probability. 0 … 1; 0: all.
  float min_p = 0.0f;

  // Divides positive and multiplies negative logits of tokens in the prompt or generated. 0.01 …
  // 100; 1: none.
  float repetition_penalty = 1.0f;
  // Subtracted once from a token generated before. -2 … 2.
  float presence_penalty = 0.0f;
  // Subtracted as often as a token was generated before. -2 … 2.
  float frequency_penalty = 0.0f;
  // Added to logits after the penalties. -100 … 100 each, at most 1024.
  absl::flat_hash_map<TokenId, float> logit_bias;

  // Text that ends the output, itself not part of it. At most 16, each of 1 to 256 bytes.
  std::vector<std::string> stop;
  // Tokens that end the output beside the model's own. At most 64.
  std::vector<TokenId> stop_token_ids;
  // The most tokens to generate, >= 1; absent: until the context is full.
  std::optional<int32_t> max_tokens;
  // No token that ends the output is chosen before so many are generated. >= 0, <= max_tokens.
  int32_t min_tokens = 0;
  // The model's own end tokens do not end the output.
  bool ignore_eos = false;

  // Report the chosen token's log-probability and those of so many most likely tokens, 0 … 20.
  // Absent: none.
  std::optional<int32_t> logprobs;
  // Absent: the engine draws one.
  std::optional<uint64_t> seed;

  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

}  // namespace baton
