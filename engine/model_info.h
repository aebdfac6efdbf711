// Description of a loaded model: spec, identity, tokenizer and chat template.
#pragma once

#include <string>

#include "common/sampling_defaults.h"
#include "model/model_spec.h"
#include "text/tokenizer.h"

namespace baton {

struct ModelInfo {
  std::string path;
  std::string fingerprint;  // ModelFingerprint
  ModelSpec spec;
  TokenizerSpec tokenizer;
  std::string chat_template;  // empty: none
  SamplingDefaults sampling;  // recommended for conversations; affects no answer by itself
};

}  // namespace baton
