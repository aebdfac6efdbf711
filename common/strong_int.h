// Integer types for ids. The compiler rejects mixing ids of different kinds.
//
// Thread safety: values are plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>

#include "common/token_id.h"

namespace baton {

// Integer that compares and hashes only with its own kind. `Tag` names the kind.
template <typename Tag, typename Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;
  StrongInt& operator++() {
    ++value_;
    return *this;
  }

  template <typename H>
  friend H AbslHashValue(H h, StrongInt id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& os, StrongInt id) { return os << id.value_; }

 private:
  Rep value_{};
};

// A KV block of one worker's pool. It spans all layers of its KV group. -1 means "no block".
using BlockId = StrongInt<struct BlockIdTag, int32_t>;
inline constexpr BlockId kNoBlock{-1};

// A sequence of one worker. Ids are not reused during the worker's life.
using SequenceId = StrongInt<struct SequenceIdTag, uint64_t>;

// One incarnation of a worker process. A restarted worker has another epoch.
using Epoch = StrongInt<struct EpochTag, uint64_t>;

}  // namespace baton
