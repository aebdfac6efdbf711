// The latest batches of KV events of one epoch, numbered from 1, for who comes late or reads
// slowly. Old ones are dropped for new ones: who still needed them is better served by a snapshot.
//
// Invariant: what is kept is a run of numbers that ends with last(), and at most kept_bytes large
// or one batch long.
//
// Thread safety: the owner's lock. Batches themselves are immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace baton {

class KvEventLog {
 public:
  using Batch = std::shared_ptr<const std::string>;  // encoded (kv_event.h)

  explicit KvEventLog(size_t kept_bytes) : kept_bytes_(kept_bytes) {}

  // Its number is last() from then on.
  void Append(std::string batch);
  uint64_t last() const { return last_; }  // 0: there was none yet
  // Null when it is no longer, or not yet, there.
  Batch Find(uint64_t sequence) const;

 private:
  const size_t kept_bytes_;
  std::deque<Batch> kept_;
  size_t bytes_ = 0;
  uint64_t last_ = 0;
};

}  // namespace baton
