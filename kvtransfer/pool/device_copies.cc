#include "kvtransfer/pool/device_copies.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/ops.h"

namespace baton {

absl::Status DeviceCopies::Prepare() {
  const ByteRun one[] = {{.from = 0, .to = 0, .bytes = 1}};
  uint32_t checksum = 0;
  return stream_->Prepare([&] {
    device_.ops().CopyRuns(*stream_,
                           {.from = pool_, .to = pool_, .runs = one, .checksums = &checksum});
  });
}

absl::StatusOr<uint64_t> DeviceCopies::Begin(Direction direction, std::span<const Run> runs) {
  return Enqueue(direction, runs, /*on_host=*/true, nullptr);
}

absl::StatusOr<uint64_t> DeviceCopies::BeginOnDevice(Direction direction, std::span<const Run> runs,
                                                     uint32_t* checksums) {
  return Enqueue(direction, runs, /*on_host=*/false, checksums);
}

absl::StatusOr<uint64_t> DeviceCopies::Enqueue(Direction direction, std::span<const Run> runs,
                                               bool on_host, uint32_t* checksums) {
  RETURN_IF_ERROR(device_.Health());
  const bool out = direction == Direction::kFromPool;
  std::byte* const other = runs.empty() ? nullptr : runs.front().staging;
  list_.clear();
  for (const Run& run : runs) {
    const int64_t at = run.staging - other;
    list_.push_back(
        {.from = out ? run.pool_offset : at, .to = out ? at : run.pool_offset, .bytes = run.bytes});
  }
  device_.ops().CopyRuns(*stream_, {.from = out ? pool_ : other,
                                    .to = out ? other : pool_,
                                    .runs = list_,
                                    .staging = on_host,
                                    .checksums = checksums});
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
