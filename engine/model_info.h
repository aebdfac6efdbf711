// What a loaded model is: hyper-parameters, identity, and all that tokenising for it takes.
//
// Thread safety: plain data.
#pragma once

#include <string>

#include "model/llama/llama_config.h"
#include "text/tokenizer.h"

namespace baton {

struct ModelInfo {
  std::string path;
  std::string architecture;  // "llama"
  std::string fingerprint;   // hex of a 128-bit hash over hyper-parameters and weights
  LlamaConfig config;
  TokenizerSpec tokenizer;
  std::string chat_template;  // empty: none
};

}  // namespace baton
