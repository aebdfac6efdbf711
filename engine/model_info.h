// Description of a loaded model: spec, identity, and what is needed to tokenise text for it.
#pragma once

#include <string>

#include "model/model_spec.h"
#include "text/tokenizer.h"

namespace baton {

struct ModelInfo {
  std::string path;
  std::string fingerprint;  // hex of a 128-bit hash over hyper-parameters and weights
  ModelSpec spec;
  TokenizerSpec tokenizer;
  std::string chat_template;  // empty: none
};

}  // namespace baton
