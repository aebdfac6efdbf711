// Small vocabulary and golden ids, written by tests/oracle/tokenizer_golden.py.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace baton {

inline TokenizerSpec SmallVocabulary(const std::string& pre) {
  std::ifstream file(std::string(BATON_TESTDATA) + "/tokenizer_vocab.json");
  const auto json = nlohmann::json::parse(file);
  TokenizerSpec spec;
  spec.tokens = json.at("tokens").get<std::vector<std::string>>();
  spec.token_types = json.at("token_types").get<std::vector<int32_t>>();
  spec.merges = json.at("merges").get<std::vector<std::string>>();
  spec.model = "gpt2";
  spec.pre = pre;
  spec.bos = 1;
  spec.eos = 2;
  return spec;
}

// Returns the id of the small vocabulary's token `text`. Throws if there is none.
inline TokenId SmallVocabularyId(std::string_view text) {
  const std::vector<std::string> tokens = SmallVocabulary("gpt-2").tokens;
  const auto at = std::find(tokens.begin(), tokens.end(), text);
  if (at == tokens.end()) throw std::out_of_range(std::string(text));
  return static_cast<TokenId>(at - tokens.begin());
}

inline std::vector<nlohmann::json> GoldenLines() {
  std::ifstream file(std::string(BATON_TESTDATA) + "/tokenizer_golden.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace baton
