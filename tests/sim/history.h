// History of a run: the last kKept events as readable text, and a fingerprint of all events. If two
// runs of one seed have different fingerprints, the simulation is not deterministic.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton {

class History {
 public:
  struct Entry {
    int64_t time_us = 0;
    int32_t node = 0;
    uint64_t request = 0;  // 0: none
    const char* what = "";
    int64_t a = 0;
    int64_t b = 0;
    std::string detail;
  };

  void NameNode(int32_t node, std::string name);
  const std::string& NameOf(int32_t node) const { return names_.at(static_cast<size_t>(node)); }

  // `what` must be a string literal with up to two %d, for `a` and `b`.
  void Note(int64_t time_us, int32_t node, uint64_t request, const char* what, int64_t a = 0,
            int64_t b = 0, std::string detail = {});

  uint64_t fingerprint() const { return fingerprint_; }
  // Returns the last `count` events of the request, together with events that belong to no request
  // (such as process faults). `request` 0 selects all events.
  std::string Tail(size_t count, uint64_t request) const;

 private:
  static constexpr size_t kKept = 20'000;

  std::string Line(const Entry& entry) const;

  std::vector<std::string> names_;
  std::deque<Entry> entries_;
  uint64_t fingerprint_ = 0;
};

}  // namespace baton
