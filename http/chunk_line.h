// Finds where a chunked body (RFC 9112 §7.1) may be cut, for both parsers of this folder.
//
// Boost.Beast 1.81 asserts that it gets the last chunk together with its trailer, and it has no
// limit on either. So a parser passes it the line of a chunk's size, or the last chunk with its
// trailer, only when all of it is there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Longest line with the size of a chunk, and longest last chunk with its trailer. In bytes, with
// the line ends.
inline constexpr size_t kMaxChunkLineBytes = 1024;

struct ChunkLine {
  size_t bytes = 0;  // its length; 0: more bytes must come, or it is too long
  bool too_long = false;
};

// `bytes` begin where the line of a chunk's size is expected. If the line end of the chunk before
// is still there, it counts as part of the line. For all input, how the bytes are split makes no
// difference to what is found in the end.
ChunkLine FindChunkLine(std::string_view bytes);

// Says that a line is too long, with the limit.
std::string ChunkLineProblem();

// Says that a whole line does not begin a chunk. Beast does not refuse all of these: it asks for
// more bytes if, for example, a single letter stands between a chunk's data and the line end.
inline constexpr std::string_view kNoChunk = "the body has something else where a chunk must begin";

}  // namespace baton
