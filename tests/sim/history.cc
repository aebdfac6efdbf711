#include "tests/sim/history.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "tests/sim/sim_random.h"

namespace baton {

void History::NameNode(int32_t node, std::string name) {
  if (names_.size() <= static_cast<size_t>(node)) names_.resize(static_cast<size_t>(node) + 1);
  names_[static_cast<size_t>(node)] = std::move(name);
}

void History::Note(int64_t time_us, int32_t node, uint64_t request, const char* what, int64_t a,
                   int64_t b, std::string detail) {
  uint64_t print = fingerprint_;
  for (const uint64_t part : {static_cast<uint64_t>(time_us), static_cast<uint64_t>(node), request,
                              static_cast<uint64_t>(a), static_cast<uint64_t>(b)}) {
    print = MixBits(print ^ (part + 0x9E3779B97F4A7C15ull));
  }
  fingerprint_ = print;
  entries_.push_back({time_us, node, request, what, a, b, std::move(detail)});
  if (entries_.size() > kKept) entries_.pop_front();
}

std::string History::Line(const Entry& entry) const {
  std::string text = entry.what;
  for (const int64_t value : {entry.a, entry.b}) {
    const size_t at = text.find("%d");
    if (at == std::string::npos) break;
    text.replace(at, 2, std::to_string(value));
  }
  return absl::StrFormat("%10.3f ms  %-10s %-6s %s%s%s\n",
                         static_cast<double>(entry.time_us) / 1000, NameOf(entry.node),
                         entry.request == 0 ? "" : absl::StrFormat("r%d", entry.request), text,
                         entry.detail.empty() ? "" : ": ", entry.detail);
}

std::string History::Tail(size_t count, uint64_t request) const {
  std::deque<const Entry*> chosen;
  for (auto it = entries_.rbegin(); it != entries_.rend() && chosen.size() < count; ++it) {
    if (request == 0 || it->request == request || it->request == 0) chosen.push_front(&*it);
  }
  std::string text;
  for (const Entry* entry : chosen) text += Line(*entry);
  return text;
}

}  // namespace baton
