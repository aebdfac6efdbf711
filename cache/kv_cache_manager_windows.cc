// What a KvCacheManager does for its sliding-window groups.
#include <algorithm>
#include <utility>

#include "cache/kv_cache_manager.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::StatusOr<std::vector<WindowPoolOptions>> WindowsOf(const KvCacheSpec& spec) {
  RETURN_IF_ERROR(CheckKvCacheSpec(spec));
  std::vector<WindowPoolOptions> windows;
  for (const KvGroupSpec& group : spec.groups) {
    if (group.kind == KvGroupKind::kSlidingWindow) windows.push_back({.window = group.window});
  }
  return windows;
}

absl::Status KvCacheManager::BeginWindowRuns(SequenceId id, int32_t blocks) {
  for (size_t i = 0; i < windows_.size(); ++i) {
    if (windows_[i]->BeginRun(id, blocks)) continue;
    for (size_t taken = 0; taken < i; ++taken) windows_[taken]->Release(id);
    const BlockAllocator& pool = windows_[i]->cache().blocks();
    return absl::ResourceExhaustedError(StrCat("KV group ", i + 1, ": no run of ", blocks,
                                               " free blocks; ", pool.free_count(), " of ",
                                               pool.total(), " blocks are free"));
  }
  return absl::OkStatus();
}

absl::Status KvCacheManager::ReserveForImport(SequenceId id, int32_t tokens) {
  return ReserveAll(id, tokens, /*imports=*/true);
}

// Checks every window's room before anything is taken. Freeing group 0's blocks on the way only
// frees blocks of the windows.
absl::Status KvCacheManager::ReserveAll(SequenceId id, int32_t tokens, bool imports) {
  SequenceKv& kv = Get(id);
  std::vector<WindowTables::Growth> growths;
  for (const auto& window : windows_) {
    FreeBehind(*window, id);
    growths.push_back(imports ? window->GrowToImport(id, kv.committed, tokens)
                              : window->GrowToCompute(id, kv.committed, tokens));
    RETURN_IF_ERROR(window->CheckRoom(id, growths.back()));
  }
  RETURN_IF_ERROR(ReserveFull(id, kv, tokens, MissingFor(kv, tokens)));
  for (size_t i = 0; i < windows_.size(); ++i) {
    const int32_t held = windows_[i]->held(id);
    const std::optional<BlockCopy> copy = windows_[i]->Grow(id, growths[i]);
    if (copy) copies_.push_back(*copy);
    TraceWindow(static_cast<int32_t>(i) + 1, id, kv.committed, held);
  }
  return absl::OkStatus();
}

void KvCacheManager::FreeBehind(WindowTables& window, SequenceId id) {
  const int32_t held = window.held(id), committed = Get(id).committed;
  window.Trim(id, committed);
  TraceWindow(window.group(), id, committed, held);
}

void KvCacheManager::TraceWindow(int32_t group, SequenceId id, int32_t committed,
                                 int32_t held_before) {
  const int32_t more = windows_[group - 1]->held(id) - held_before;
  if (more == 0 || !trace_.records()) return;
  trace_.Add({.time_us = 0,
              .kind = more > 0 ? AllocationEvent::Kind::kReserve : AllocationEvent::Kind::kRelease,
              .sequence = id,
              .tokens = committed,
              .blocks = std::abs(more),
              .free_after = Blocks(group).free_count(),
              .group = group});
}

int32_t KvCacheManager::WholeBoundary(SequenceId id, int32_t tokens) const {
  const int32_t committed = Get(id).committed;
  // A shorter boundary for one window may be torn for another.
  for (int32_t before = -1; tokens != before;) {
    before = tokens;
    for (const auto& window : windows_) tokens = window->LongestWhole(id, committed, tokens);
  }
  return tokens;
}

absl::Status KvCacheManager::CheckRoomToImport(int32_t matched, int32_t tokens,
                                               int32_t spare_blocks) const {
  for (int32_t group = 1; group < groups(); ++group) {
    const int64_t needed =
        int64_t{windows_[group - 1]->ChargeToImport(matched, tokens)} + spare_blocks;
    const int32_t available = windows_[group - 1]->available();
    if (needed <= available) continue;
    return absl::ResourceExhaustedError(
        StrCat("KV group ", group, ": a prefix of ", tokens, " tokens needs ", needed, " blocks, ",
               std::max(0, available), " of ", num_blocks(group), " can be had"));
  }
  return absl::OkStatus();
}

}  // namespace baton
