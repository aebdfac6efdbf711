// Segment of a rendered prompt, with its origin.
//
// Trusted text comes from the model file: the template's own text and the BOS and EOS tokens. The
// tokenizer may recognise control tokens in it. Untrusted text comes from a request; the tokenizer
// never recognises a control token in it. Marked text is a part of a message's content that the
// caller of the template follows through the render (RenderOptions::mark).
//
// Thread safety: plain data.
#pragma once

#include <string>

namespace baton {

struct TextSegment {
  std::string text;
  bool trusted = false;
  bool marked = false;

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

}  // namespace baton
