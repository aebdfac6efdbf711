// String that records for each run of bytes whether the template or a request wrote it, and whether
// the caller marked it.
//
// This prevents user text from becoming a control token. Every operation of the template engine
// that copies bytes also copies their trust. A "<|im_end|>" typed by a user therefore stays
// untrusted through concatenation, slicing, stripping, splitting and replacing.
//
// Invariants: runs cover all bytes in order, are never empty, and neighbours differ in trust or
// mark.
// Thread safety: a value type; many threads may read it at the same time.
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
  // Returns untrusted text whose bytes from `begin` on are marked. REQUIRES: begin <= bytes.size().
  static JinjaString MarkedFrom(std::string_view bytes, size_t begin);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Returns true if no byte came from a request. The empty string is trusted.
  bool AllTrusted() const;
  // Memory of a copy in bytes, for the meter of a render.
  size_t CostBytes() const { return bytes_.size() + sizeof(Run) * runs_.size(); }

  void Append(std::string_view bytes, bool trusted) { AppendRun(bytes, trusted, false); }
  void Append(const JinjaString& other) { AppendRange(other, 0, other.size()); }
  // Appends other's bytes [begin, end). REQUIRES: begin <= end <= other.size(); &other != this.
  void AppendRange(const JinjaString& other, size_t begin, size_t end);
  JinjaString Substring(size_t begin, size_t end) const;
  // Returns a string with other bytes but the same runs, for changes of ASCII case. REQUIRES: same
  // length.
  JinjaString WithBytes(std::string bytes) const;

  // Returns one segment per run; none for the empty string.
  std::vector<TextSegment> Segments() const;

 private:
  struct Run {
    size_t end;  // byte offset past the run
    bool trusted;
    bool marked;
  };

  void AppendRun(std::string_view bytes, bool trusted, bool marked);

  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace baton
