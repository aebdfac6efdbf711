#include "cache/window_groups.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

WindowGroups::WindowGroups(std::span<const WindowPoolOptions> windows, const Options& options,
                           RadixTree* tree, AllocationTrace* trace)
    : trace_(*trace) {
  CHECK_LT(windows.size(), size_t{kMaxKvGroups});
  for (const WindowPoolOptions& window : windows) {
    groups_.push_back(std::make_unique<WindowTables>(1 + size(), window, options.block_size,
                                                     options.max_step_tokens, options.full_blocks,
                                                     options.policy, &tree->owners()));
    tree->AddWindow(&groups_.back()->cache());
  }
}

void WindowGroups::Begin(SequenceId id, std::span<const BlockId> path, int32_t priority) {
  for (const auto& group : groups_) group->Begin(id, path, priority);
}

absl::Status WindowGroups::BeginRuns(SequenceId id, int32_t blocks) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->BeginRun(id, blocks)) continue;
    for (size_t taken = 0; taken < i; ++taken) groups_[taken]->Release(id);
    const BlockAllocator& pool = groups_[i]->cache().blocks();
    return absl::ResourceExhaustedError(StrCat("KV group ", i + 1, ": no run of ", blocks,
                                               " free blocks; ", pool.free_count(), " of ",
                                               pool.total(), " blocks are free"));
  }
  return absl::OkStatus();
}

absl::StatusOr<WindowGroups::Growths> WindowGroups::PlanGrowth(SequenceId id, int32_t committed,
                                                               int32_t tokens, bool imports) {
  Growths growths;
  for (const auto& group : groups_) {
    Trim(*group, id, committed);
    growths.push_back(imports ? group->GrowToImport(id, committed, tokens)
                              : group->GrowToCompute(id, committed, tokens));
    RETURN_IF_ERROR(group->CheckRoom(id, growths.back()));
  }
  return growths;
}

void WindowGroups::Grow(SequenceId id, const Growths& growths, std::vector<BlockCopy>& copies) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int32_t held = groups_[i]->held(id);
    const std::optional<BlockCopy> copy = groups_[i]->Grow(id, growths[i]);
    if (copy) copies.push_back(*copy);
    Trace(*groups_[i], id, growths[i].committed, held);
  }
}

void WindowGroups::FreeBehind(SequenceId id, int32_t committed) {
  for (const auto& group : groups_) Trim(*group, id, committed);
}

void WindowGroups::Trim(WindowTables& group, SequenceId id, int32_t committed) {
  const int32_t held = group.held(id);
  group.Trim(id, committed);
  Trace(group, id, committed, held);
}

void WindowGroups::Insert(SequenceId id, int32_t first, std::span<const BlockId> full,
                          OwnerSlot owner) {
  for (const auto& group : groups_) group->Insert(id, first, full, owner);
}

absl::Status WindowGroups::CheckRoomToFork(SequenceId parent, int32_t committed) const {
  for (const auto& group : groups_) RETURN_IF_ERROR(group->CheckRoomToFork(parent, committed));
  return absl::OkStatus();
}

void WindowGroups::Fork(SequenceId parent, SequenceId child, int32_t committed) {
  for (const auto& group : groups_) group->Fork(parent, child, committed);
}

void WindowGroups::Release(SequenceId id) {
  for (const auto& group : groups_) group->Release(id);
}

void WindowGroups::KeepWaterMarks(const WaterMarks& marks) {
  for (const auto& group : groups_) {
    const int32_t limit = group->cache().blocks().limit();
    const int32_t used = limit - group->cache().blocks().free_count();
    group->cache().EvictOverShares(marks.Excess(used, limit));
  }
}

int32_t WindowGroups::LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const {
  // Repeats, because a shorter boundary for one window may not be whole for another.
  for (int32_t before = -1; tokens != before;) {
    before = tokens;
    for (const auto& group : groups_) tokens = group->LongestWhole(id, committed, tokens);
  }
  return tokens;
}

absl::Status WindowGroups::CheckRoomToImport(int32_t matched, int32_t tokens,
                                             int32_t spare_blocks) const {
  for (const auto& group : groups_) {
    const int64_t needed = int64_t{group->ChargeToImport(matched, tokens)} + spare_blocks;
    if (needed <= group->available()) continue;
    return absl::ResourceExhaustedError(StrCat("KV group ", group->group(), ": a prefix of ",
                                               tokens, " tokens needs ", needed, " blocks, ",
                                               std::max(0, group->available()), " of ",
                                               group->cache().blocks().limit(), " are available"));
  }
  return absl::OkStatus();
}

void WindowGroups::ChargeToAdmit(int32_t matched, int32_t tokens, BlockCounts& counts) const {
  for (const auto& group : groups_) {
    counts[group->group()] = group->ChargeToAdmit(matched, tokens);
  }
}

absl::Status WindowGroups::CheckSequence(SequenceId id, int32_t committed,
                                         std::span<const BlockId> full,
                                         int32_t shared_blocks) const {
  for (const auto& group : groups_) {
    RETURN_IF_ERROR(group->CheckSequence(id, committed, full, shared_blocks));
  }
  return absl::OkStatus();
}

absl::Status WindowGroups::CheckConservation() const {
  for (const auto& group : groups_) RETURN_IF_ERROR(group->CheckConservation());
  return absl::OkStatus();
}

void WindowGroups::Trace(const WindowTables& group, SequenceId id, int32_t committed,
                         int32_t held_before) {
  if (!trace_.records()) return;
  const int32_t more = group.held(id) - held_before;
  if (more == 0) return;
  trace_.Add({.time_us = 0,
              .kind = more > 0 ? AllocationEvent::Kind::kReserve : AllocationEvent::Kind::kRelease,
              .sequence = id,
              .tokens = committed,
              .blocks = std::abs(more),
              .free_after = group.cache().blocks().free_count(),
              .group = group.group()});
}

}  // namespace baton
