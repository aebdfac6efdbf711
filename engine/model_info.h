// What a loaded model is: spec, identity, and all that tokenising for it takes.
//
// Thread safety: plain data.
#pragma once

#include <string>

#include "common/sampling_defaults.h"
#include "model/model_spec.h"
#include "text/tokenizer.h"

namespace baton {

struct ModelInfo {
  std::string path;
  std::string fingerprint;  // hex of a 128-bit hash over hyper-parameters and weights
  ModelSpec spec;
  TokenizerSpec tokenizer;
  std::string chat_template;  // empty: none
  SamplingDefaults sampling;  // for conversations; no answer depends on it
};

}  // namespace baton
