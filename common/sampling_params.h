// Parameters of a request that say how tokens are chosen and where the answer ends.
//
// A field's initial value means "not given". A client that leaves a field out gets that value,
// which is not always zero. Names, ranges and meanings follow OpenAI's API if it has the field. The
// others follow vLLM and llama.cpp. common/request_check.h checks the ranges.
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
inline constexpr float kMaxPenalty = 2;      // of presence and frequency; the least is -2
inline constexpr float kMaxLogitBias = 100;  // the least is -100
inline constexpr int64_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr int32_t kMaxTopLogprobs = 20;

struct SamplingParams {
  // Divides the logits. 0 … 100. 0 is greedy: the most likely token, the lowest id among equals.
  float temperature = 1.0f;
  // Keeps only this many of the most likely tokens. >= 0. 0, or the vocabulary's size and more,
  // keeps all.
  int32_t top_k = 0;
  // Keeps the fewest most likely tokens whose probabilities add up to this share, after top_k.
  // Above 0, up to 1. 1 keeps all.
  float top_p = 1.0f;
  // Keeps tokens whose probability is at least this share of the most likely token's. 0 … 1. 0
  // keeps all.
  float min_p = 0.0f;

  // Divides positive logits and multiplies negative logits of tokens in the prompt or the answer.
  // 0.01 … 100. 1 changes nothing.
  float repetition_penalty = 1.0f;
  // Subtracted once from the logit of each generated token. -2 … 2.
  float presence_penalty = 0.0f;
  // Subtracted from a token's logit once for each time that it was generated. -2 … 2.
  float frequency_penalty = 0.0f;
  // Added to logits after the penalties. Each -100 … 100, at most 1024 entries.
  absl::flat_hash_map<TokenId, float> logit_bias;

  // Strings that end the output. The output does not contain them. At most 16, each of 1 to 256
  // bytes.
  std::vector<std::string> stop;
  // Tokens that end the output, in addition to the model's own. At most 64.
  std::vector<TokenId> stop_token_ids;
  // The most tokens to generate, >= 1. Absent: until the context is full.
  std::optional<int32_t> max_tokens;
  // No token that ends the output is chosen before this many are generated. >= 0, <= max_tokens.
  int32_t min_tokens = 0;
  // The model's own end tokens do not end the output.
  bool ignore_eos = false;

  // Reports the log-probability of each chosen token and of this many most likely tokens, 0 … 20.
  // Absent: none.
  std::optional<int32_t> logprobs;
  // Absent: the engine draws one.
  std::optional<uint64_t> seed;

  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

}  // namespace baton
