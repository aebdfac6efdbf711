// The small vocabulary and the golden ids that tests/oracle/tokenizer_golden.py wrote.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
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

inline std::vector<nlohmann::json> GoldenLines() {
  std::ifstream file(std::string(BATON_TESTDATA) + "/tokenizer_golden.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace baton
