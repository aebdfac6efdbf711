// Streaming detokenizer: turns tokens into text, one token at a time. Every part that it returns is
// valid UTF-8.
//
// Invariant: the concatenated results of Append and Finish equal Tokenizer::DecodeText of all
// tokens. If several tokens share a character's bytes, the character appears with the last of them.
// Invalid bytes that no further byte can complete appear as U+FFFD at once. At most three bytes are
// held back.
//
// Thread safety: belongs to one thread.
#pragma once

#include <string>

#include "common/strong_int.h"
#include "text/tokenizer.h"

namespace baton {

class StreamingDetokenizer {
 public:
  // `tokenizer` must outlive this object.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(tokenizer), options_(options) {}

  // Adds token `id` and returns the text that is complete now. Ignores ids outside the vocabulary.
  std::string Append(TokenId id);

  // Returns U+FFFD for an unfinished character, else nothing. Append may then start a new text.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // an unfinished character
};

}  // namespace baton
