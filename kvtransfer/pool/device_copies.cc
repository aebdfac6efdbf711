#include "kvtransfer/pool/device_copies.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<uint64_t> DeviceCopies::Begin(Direction direction, std::span<const Run> runs) {
  RETURN_IF_ERROR(device_.Health());
  for (const Run& run : runs) {
    std::byte* const in_pool = pool_ + run.pool_offset;
    if (direction == Direction::kFromPool) {
      stream_->Copy(run.staging, in_pool, static_cast<size_t>(run.bytes));
    } else {
      stream_->Copy(in_pool, run.staging, static_cast<size_t>(run.bytes));
    }
  }
  std::unique_ptr<Event> end;
  if (idle_.empty()) {
    end = device_.CreateEvent();
  } else {
    end = std::move(idle_.back());
    idle_.pop_back();
  }
  stream_->Record(*end);
  running_.emplace(++last_, std::move(end));
  return last_;
}

absl::StatusOr<bool> DeviceCopies::Ended(uint64_t copy) {
  const auto at = running_.find(copy);
  CHECK(at != running_.end()) << "copy " << copy << " has ended before";
  if (!at->second->Done()) return false;
  idle_.push_back(std::move(at->second));
  running_.erase(at);
  RETURN_IF_ERROR(device_.Health());  // after a failure, events are done without the copy
  return true;
}

}  // namespace baton
