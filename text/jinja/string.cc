#include "text/jinja/string.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

bool JinjaString::AllTrusted() const {
  return std::all_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.trusted; });
}

JinjaString JinjaString::MarkedFrom(std::string_view bytes, size_t begin) {
  JinjaString result(bytes.substr(0, begin), /*trusted=*/false);
  result.AppendRun(bytes.substr(begin), /*trusted=*/false, /*marked=*/true);
  return result;
}

void JinjaString::AppendRun(std::string_view bytes, bool trusted, bool marked) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted && runs_.back().marked == marked) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted, marked});
  }
}

void JinjaString::AppendRange(const JinjaString& other, size_t begin, size_t end) {
  CHECK(begin <= end && end <= other.size());
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t offset, const Run& r) { return offset < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    AppendRun(std::string_view(other.bytes_).substr(begin, stop - begin), run->trusted,
              run->marked);
    begin = stop;
    ++run;
  }
}

JinjaString JinjaString::Substring(size_t begin, size_t end) const {
  JinjaString result;
  result.AppendRange(*this, begin, end);
  return result;
}

JinjaString JinjaString::WithBytes(std::string bytes) const {
  CHECK_EQ(bytes.size(), bytes_.size());
  JinjaString result = *this;
  result.bytes_ = std::move(bytes);
  return result;
}

std::vector<TextSegment> JinjaString::Segments() const {
  std::vector<TextSegment> segments;
  segments.reserve(runs_.size());
  size_t begin = 0;
  for (const Run& run : runs_) {
    segments.push_back({bytes_.substr(begin, run.end - begin), run.trusted, run.marked});
    begin = run.end;
  }
  return segments;
}

}  // namespace baton
