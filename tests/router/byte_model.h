// A model whose token b is byte b.
#pragma once

#include <cstdint>

#include "router/served_model.h"
#include "text/byte_alphabet.h"

namespace baton {

inline ModelDescription ByteModel(int32_t context_length) {
  ModelDescription description;
  description.context_length = context_length;
  description.tokenizer.model = "gpt2";
  description.tokenizer.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    description.tokenizer.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  description.tokenizer.token_types.assign(256, 1);
  return description;
}

}  // namespace baton
