// A piece of a rendered prompt with its origin.
//
// `trusted` text was written by the model's maker (the template's own bytes, the begin and end
// tokens): the tokenizer may recognise special tokens in it. Untrusted text came from a request and
// must be tokenised as plain text, whatever it looks like. Thread safety: plain data.
#pragma once

#include <string>

namespace baton {

struct TextSegment {
  std::string text;
  bool trusted = false;

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

}  // namespace baton
