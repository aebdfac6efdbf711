#include "kvtransfer/pool/device_copies.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/ops.h"

namespace baton {

absl::StatusOr<uint64_t> DeviceCopies::Begin(Direction direction, std::span<const Run> runs) {
  RETURN_IF_ERROR(device_.Health());
  const bool out = direction == Direction::kFromPool;
  std::byte* const staging = runs.empty() ? nullptr : runs.front().staging;
  list_.clear();
  for (const Run& run : runs) {
    const int64_t staged = run.staging - staging;
    list_.push_back({.from = out ? run.pool_offset : staged,
                     .to = out ? staged : run.pool_offset,
                     .bytes = run.bytes});
  }
  device_.ops().CopyRuns(
      *stream_,
      {.from = out ? pool_ : staging, .to = out ? staging : pool_, .runs = list_, .staging = true});
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
