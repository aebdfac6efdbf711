#include "kvtransfer/pool/device_copies.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/ops.h"

namespace baton {

DeviceCopies::DeviceCopies(std::span<const Part> parts) {
  CHECK(!parts.empty());
  for (const Part& part : parts) {
    ranks_.push_back({.part = part, .stream = part.device->CreateStream()});
  }
}

absl::StatusOr<uint64_t> DeviceCopies::Begin(Direction direction, std::span<const Run> runs) {
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.part.device->Health());
  const bool out = direction == Direction::kFromPool;
  std::byte* const staging = runs.empty() ? nullptr : runs.front().staging;
  list_.clear();
  for (Rank& rank : ranks_) rank.rows.clear();
  for (const Run& run : runs) {
    const int64_t staged = run.staging - staging;
    const int64_t from = out ? run.pool_offset : staged;
    const int64_t to = out ? staged : run.pool_offset;
    if (ranks_.size() == 1) {
      CHECK_EQ(run.rows, 1);
      list_.push_back({.from = from, .to = to, .bytes = run.bytes});
      continue;
    }
    ranks_[static_cast<size_t>(run.rank)].rows.push_back(
        {.from = from,
         .to = to,
         .bytes = run.bytes,
         .rows = run.rows,
         .from_stride = out ? run.pool_stride : run.staging_stride,
         .to_stride = out ? run.staging_stride : run.pool_stride});
  }
  Events ends;
  for (Rank& rank : ranks_) {
    const std::byte* const source = out ? rank.part.pool : staging;
    std::byte* const target = out ? staging : rank.part.pool;
    const Ops& ops = rank.part.device->ops();
    if (ranks_.size() == 1) {
      ops.CopyRuns(*rank.stream, {.from = source, .to = target, .runs = list_, .staging = true});
    } else {
      ops.CopyRows(*rank.stream,
                   {.from = source, .to = target, .runs = rank.rows, .staging = true});
    }
    ends.push_back(RecordEnd(rank));
  }
  running_.emplace(++last_, std::move(ends));
  return last_;
}

std::unique_ptr<Event> DeviceCopies::RecordEnd(Rank& rank) {
  std::unique_ptr<Event> end;
  if (rank.idle.empty()) {
    end = rank.part.device->CreateEvent();
  } else {
    end = std::move(rank.idle.back());
    rank.idle.pop_back();
  }
  rank.stream->Record(*end);
  return end;
}

absl::StatusOr<bool> DeviceCopies::Ended(uint64_t copy) {
  const auto at = running_.find(copy);
  CHECK(at != running_.end()) << "copy " << copy << " has ended before";
  Events& ends = at->second;
  if (!std::ranges::all_of(ends, [](const auto& end) { return end->Done(); })) return false;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    ranks_[rank].idle.push_back(std::move(ends[rank]));
  }
  running_.erase(at);
  // After a failure, events are done without the copy.
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.part.device->Health());
  return true;
}

}  // namespace baton
