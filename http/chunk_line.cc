#include "http/chunk_line.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kTrailerEnd = "\r\n\r\n";

}  // namespace

ChunkLine FindChunkLine(std::string_view bytes) {
  const size_t begin = bytes.starts_with(kLineEnd) ? kLineEnd.size() : 0;
  size_t end = bytes.find(kLineEnd, begin);
  if (end != std::string_view::npos) {
    const size_t digit = bytes.find_first_not_of('0', begin);
    const bool is_last = digit > begin && !absl::ascii_isxdigit(bytes[digit]);
    if (is_last) {
      end = bytes.find(kTrailerEnd, end);
      if (end != std::string_view::npos) end += kTrailerEnd.size();
    } else {
      end += kLineEnd.size();
    }
  }
  if (std::min(end, bytes.size()) > kMaxChunkLineBytes) return {.bytes = 0, .too_long = true};
  return {.bytes = end == std::string_view::npos ? 0 : end, .too_long = false};
}

std::string ChunkLineProblem() {
  return absl::StrCat("the line of a chunk's size, or a trailer, has more than ",
                      kMaxChunkLineBytes, " bytes, the limit");
}

}  // namespace baton
