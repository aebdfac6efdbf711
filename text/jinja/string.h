// A string that remembers, byte run by byte run, whether the template wrote it or a request did.
//
// This is what keeps user text from becoming a control token: every operation of the template
// engine that moves bytes moves their origin with them, so a "<|im_end|>" typed by a user stays
// untrusted through concatenation, slicing, stripping, splitting and replacing.
//
// Invariants: runs cover the bytes in order, are never empty, and neighbours differ in trust.
// Thread safety: a value; const access from many threads is safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_segment.h"

namespace baton {

class JinjaString {
 public:
  JinjaString() = default;
  JinjaString(std::string_view bytes, bool trusted) { Append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // True when no byte came from a request. The empty string is trusted.
  bool AllTrusted() const;
  // Memory that a copy costs, for the meter of a render.
  size_t CostBytes() const { return bytes_.size() + sizeof(Run) * runs_.size(); }

  void Append(std::string_view bytes, bool trusted);
  void Append(const JinjaString& other) { AppendRange(other, 0, other.size()); }
  // Appends other's bytes [begin, end). REQUIRES: begin <= end <= other.size(); &other != this.
  void AppendRange(const JinjaString& other, size_t begin, size_t end);
  JinjaString Substring(size_t begin, size_t end) const;
  // The same origins over other bytes of the same length (upper and lower case of ASCII).
  JinjaString WithBytes(std::string bytes) const;

  // One segment per run; empty for the empty string.
  std::vector<TextSegment> Segments() const;

 private:
  struct Run {
    size_t end;  // byte offset past the run
    bool trusted;
  };

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace baton
