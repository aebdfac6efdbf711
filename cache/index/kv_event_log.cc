#include "cache/index/kv_event_log.h"

#include <utility>

namespace baton {
namespace {

constexpr size_t kOverhead = 64;  // memory of a stored batch, besides its bytes

}  // namespace

void KvEventLog::Append(std::string batch) {
  bytes_ += batch.size() + kOverhead;
  kept_.push_back(std::make_shared<const std::string>(std::move(batch)));
  ++last_;
  while (bytes_ > kept_bytes_ && kept_.size() > 1) {
    bytes_ -= kept_.front()->size() + kOverhead;
    kept_.pop_front();
  }
}

KvEventLog::Batch KvEventLog::Find(uint64_t sequence) const {
  const uint64_t before = last_ - kept_.size();  // number before the first stored batch
  if (sequence <= before || sequence > last_) return nullptr;
  return kept_[sequence - before - 1];
}

}  // namespace baton
