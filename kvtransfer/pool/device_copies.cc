#include "kvtransfer/pool/device_copies.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/ops.h"

namespace baton {

namespace {

constexpr int64_t kMostPadding = 256;  // bytes of a row

}  // namespace

DeviceCopies::DeviceCopies(std::span<const Part> parts, bool reach_first)
    : reach_first_(reach_first && parts.size() > 1) {
  CHECK(!parts.empty());
  for (const Part& part : parts) {
    ranks_.push_back({.part = part, .stream = part.device->CreateStream()});
  }
}

absl::Status DeviceCopies::Prepare() {
  if (reach_first_) {
    ASSIGN_OR_RETURN(zeros_, ranks_.front().part.device->Allocate(kMostPadding, "zeros"));
  }
  uint32_t checksum = 0;
  for (Rank& rank : ranks_) {
    std::byte* const pool = rank.part.pool;
    const Ops& ops = rank.part.device->ops();
    RETURN_IF_ERROR(rank.stream->Prepare([&] {
      const ByteRun run[] = {{.from = 0, .to = 0, .bytes = 1}};
      const ByteRows rows[] = {{.from = 0, .to = 0, .bytes = 1}};
      if (ranks_.size() == 1 || (reach_first_ && &rank == &ranks_.front())) {
        ops.CopyRuns(*rank.stream, {.from = pool, .to = pool, .runs = run, .checksums = &checksum});
      }
      if (ranks_.size() > 1) {
        ops.CopyRows(*rank.stream, {.from = pool, .to = pool, .runs = rows});
      }
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> DeviceCopies::Begin(Direction direction, std::span<const Run> runs) {
  return Enqueue(direction, runs, /*on_host=*/true, nullptr);
}

absl::StatusOr<uint64_t> DeviceCopies::BeginOnDevice(Direction direction, std::span<const Run> runs,
                                                     uint32_t* checksums) {
  return Enqueue(direction, runs, /*on_host=*/false, checksums);
}

void DeviceCopies::AppendRows(Direction direction, const Run& run, const std::byte* memory,
                              std::vector<ByteRows>& rows) {
  const bool out = direction == Direction::kFromPool;
  const int64_t staged = run.staging - memory;
  rows.push_back({.from = out ? run.pool_offset : staged,
                  .to = out ? staged : run.pool_offset,
                  .bytes = run.bytes,
                  .rows = run.rows,
                  .from_stride = out ? run.pool_stride : run.staging_stride,
                  .to_stride = out ? run.staging_stride : run.pool_stride});
}

absl::StatusOr<uint64_t> DeviceCopies::Enqueue(Direction direction, std::span<const Run> runs,
                                               bool on_host, uint32_t* checksums) {
  CHECK(ranks_.size() == 1 || on_host) << "a divided pool has no memory of one device";
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.part.device->Health());
  const bool out = direction == Direction::kFromPool;
  std::byte* const other = runs.empty() ? nullptr : runs.front().staging;
  list_.clear();
  for (Rank& rank : ranks_) rank.rows.clear();
  for (const Run& run : runs) {
    if (ranks_.size() > 1) {
      AppendRows(direction, run, other, ranks_[static_cast<size_t>(run.rank)].rows);
      continue;
    }
    CHECK_EQ(run.rows, 1);
    const int64_t staged = run.staging - other;
    list_.push_back({.from = out ? run.pool_offset : staged,
                     .to = out ? staged : run.pool_offset,
                     .bytes = run.bytes});
  }
  Copy copy;
  for (size_t at = 0; at < ranks_.size(); ++at) {
    Rank& rank = ranks_[at];
    const std::byte* const source = out ? rank.part.pool : other;
    std::byte* const target = out ? other : rank.part.pool;
    const Ops& ops = rank.part.device->ops();
    if (ranks_.size() == 1) {
      ops.CopyRuns(*rank.stream, {.from = source,
                                  .to = target,
                                  .runs = list_,
                                  .staging = on_host,
                                  .checksums = checksums});
    } else {
      ops.CopyRows(*rank.stream,
                   {.from = source, .to = target, .runs = rank.rows, .staging = true});
    }
    RecordEnd(at, copy.ends);
  }
  running_.emplace(++last_, std::move(copy));
  return last_;
}

absl::StatusOr<uint64_t> DeviceCopies::BeginOnRanks(const RankCopies& copies, uint32_t* checksums) {
  CHECK(ranks_reach_first());
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.part.device->Health());
  OnRanks copy{.direction = copies.direction,
               .memory = copies.memory,
               .rows = std::vector<std::vector<ByteRows>>(ranks_.size()),
               .padding = {copies.padding.begin(), copies.padding.end()},
               .pieces = {copies.pieces.begin(), copies.pieces.end()},
               .checksums = checksums};
  for (const Run& run : copies.runs) {
    AppendRows(copies.direction, run, copies.memory, copy.rows[static_cast<size_t>(run.rank)]);
  }
  for (const ByteRows& rows : copy.padding) CHECK_LE(rows.bytes, kMostPadding);
  Events ends = copy.direction == Direction::kFromPool ? EnqueueRows(copy) : EnqueueChecksums(copy);
  running_.emplace(++last_, Copy{.ends = std::move(ends), .half_done = std::move(copy)});
  return last_;
}

DeviceCopies::Events DeviceCopies::EnqueueRows(const OnRanks& copy) {
  const bool out = copy.direction == Direction::kFromPool;
  Events ends;
  for (size_t at = 0; at < ranks_.size(); ++at) {
    Rank& rank = ranks_[at];
    const Ops& ops = rank.part.device->ops();
    ops.CopyRows(*rank.stream, {.from = out ? rank.part.pool : copy.memory,
                                .to = out ? copy.memory : rank.part.pool,
                                .runs = copy.rows[at]});
    if (out && at == 0 && !copy.padding.empty()) {
      ops.CopyRows(*rank.stream, {.from = zeros_->data(), .to = copy.memory, .runs = copy.padding});
    }
    RecordEnd(at, ends);
  }
  return ends;
}

// The op copies the bytes onto themselves.
DeviceCopies::Events DeviceCopies::EnqueueChecksums(const OnRanks& copy) {
  Rank& first = ranks_.front();
  first.part.device->ops().CopyRuns(
      *first.stream,
      {.from = copy.memory, .to = copy.memory, .runs = copy.pieces, .checksums = copy.checksums});
  Events ends;
  RecordEnd(0, ends);
  return ends;
}

void DeviceCopies::RecordEnd(size_t rank, Events& ends) {
  Rank& of = ranks_[rank];
  std::unique_ptr<Event> end;
  if (of.idle.empty()) {
    end = of.part.device->CreateEvent();
  } else {
    end = std::move(of.idle.back());
    of.idle.pop_back();
  }
  of.stream->Record(*end);
  ends.emplace_back(rank, std::move(end));
}

absl::StatusOr<bool> DeviceCopies::Ended(uint64_t copy) {
  const auto at = running_.find(copy);
  CHECK(at != running_.end()) << "copy " << copy << " has ended before";
  Events& ends = at->second.ends;
  if (!std::ranges::all_of(ends, [](const auto& end) { return end.second->Done(); })) return false;
  for (auto& [rank, end] : ends) ranks_[rank].idle.push_back(std::move(end));
  ends.clear();
  // After a failure, events are done without the copy.
  absl::Status health;
  for (const Rank& rank : ranks_) health.Update(rank.part.device->Health());
  if (!health.ok() || !at->second.half_done) {
    running_.erase(at);
    if (!health.ok()) return health;
    return true;
  }
  const OnRanks half = *std::exchange(at->second.half_done, std::nullopt);
  ends = half.direction == Direction::kFromPool ? EnqueueChecksums(half) : EnqueueRows(half);
  return false;
}

}  // namespace baton
