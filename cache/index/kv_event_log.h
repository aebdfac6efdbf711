// The latest batches of KV events of one epoch, numbered from 1. They serve readers that join late
// or read slowly. New batches replace old ones. A reader that still needs an old one takes a
// snapshot, which is cheaper.
//
// Invariant: the stored batches have consecutive numbers that end with last(). Their size is at
// most kept_bytes, or there is only one.
//
// Thread safety: the owner locks. Batches are immutable.
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

  // Stores a batch. Its number is the new last().
  void Append(std::string batch);
  uint64_t last() const { return last_; }  // 0 before the first batch
  // Null if the batch was dropped or does not exist yet.
  Batch Find(uint64_t sequence) const;

 private:
  const size_t kept_bytes_;
  std::deque<Batch> kept_;
  size_t bytes_ = 0;
  uint64_t last_ = 0;
};

}  // namespace baton
