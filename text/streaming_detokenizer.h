// Turns a growing sequence of tokens into text that is valid UTF-8 at every step.
//
// Invariant: what Append returned so far, together with Finish, equals Tokenizer::DecodeText of all
// tokens. A character whose bytes are spread over tokens comes out with its last one; damage that
// no further byte can complete comes out as U+FFFD at once. At most three bytes are held back.
//
// Thread safety: belongs to one thread.
#pragma once

#include <string>

#include "common/strong_int.h"
#include "text/tokenizer.h"

namespace baton {

class StreamingDetokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(tokenizer), options_(options) {}

  // The text that is certain now that `id` follows. An id outside the vocabulary adds none.
  std::string Append(TokenId id);

  // The rest: U+FFFD for an unfinished character, otherwise nothing. Append may then start anew.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // an unfinished character
};

}  // namespace baton
