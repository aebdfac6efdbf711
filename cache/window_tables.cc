#include "cache/window_tables.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// The most blocks that `slots` consecutive slots can touch.
int32_t BlocksTouched(int64_t slots, int32_t block_size) {
  return static_cast<int32_t>(
      std::min<int64_t>((slots + 2 * block_size - 2) / block_size, INT32_MAX));
}

}  // namespace

WindowTables::WindowTables(int32_t group, const WindowPoolOptions& options, int32_t block_size,
                           int32_t max_step_tokens, int32_t full_blocks, EvictionPolicy policy,
                           const CacheOwners* owners)
    : group_(group),
      block_size_(block_size),
      max_step_tokens_(max_step_tokens),
      most_blocks_(BlocksTouched(int64_t{options.window} - 1 + max_step_tokens, block_size)),
      cache_(options, block_size, full_blocks, policy, owners) {
  CHECK_GE(max_step_tokens, 1);
}

WindowTables::SequenceTable& WindowTables::Get(SequenceId id) {
  const auto it = tables_.find(id);
  CHECK(it != tables_.end()) << "no window table of sequence " << id;
  return it->second;
}

const WindowTables::SequenceTable& WindowTables::Get(SequenceId id) const {
  return const_cast<WindowTables*>(this)->Get(id);
}

// ---- charges ------------------------------------------------------------------------------------

// The most blocks that a sequence with `committed` tokens holds at once until it fills `blocks`.
int32_t WindowTables::ChargeOf(int32_t blocks, int32_t committed, int32_t held) const {
  return std::max(held, std::min(blocks - cache_.DeadBlocks(committed), most_blocks_));
}

void WindowTables::SetCharge(SequenceTable& table, int32_t charge) {
  charged_ += charge - table.charge;
  table.charge = charge;
}

int32_t WindowTables::ChargeToAdmit(int32_t matched, int32_t tokens) const {
  return ChargeOf(BlocksFor(tokens), matched, BlocksFor(matched) - cache_.DeadBlocks(matched));
}

int32_t WindowTables::ChargeToImport(int32_t matched, int32_t tokens) const {
  const int32_t blocks = BlocksFor(tokens);
  const int32_t in_match = BlocksFor(matched) - cache_.DeadBlocks(matched);
  const int32_t first = std::max(BlocksFor(matched), cache_.DeadBlocks(tokens));
  return ChargeOf(blocks, matched, in_match + std::max(0, blocks - first));
}

// ---- begin, grow, trim, insert, fork, release ---------------------------------------------------

void WindowTables::Begin(SequenceId id, std::span<const BlockId> path, int32_t priority) {
  SequenceTable table;
  table.priority = priority;
  table.blocks.assign(path.size(), kNoBlock);
  table.end = static_cast<int32_t>(path.size());
  table.begin = std::max(0, table.end - cache_.whole_blocks());
  for (int32_t i = table.begin; i < table.end; ++i) {
    table.blocks[i] = cache_.At(path[i]);
    CHECK_NE(table.blocks[i], kNoBlock) << "block " << i << " of a match is a tombstone";
    cache_.AddHold(table.blocks[i], BlockHolder::kSequence, priority);
  }
  table.held = table.end - table.begin;
  SetCharge(table, table.held);
  CHECK(tables_.emplace(id, std::move(table)).second) << "sequence " << id << " already exists";
}

bool WindowTables::BeginRun(SequenceId id, int32_t blocks) {
  SequenceTable table;
  if (!cache_.AllocateRun(blocks, table.blocks)) return false;
  table.is_run = true;
  table.end = table.held = blocks;
  SetCharge(table, blocks);
  CHECK(tables_.emplace(id, std::move(table)).second) << "sequence " << id << " already exists";
  return true;
}

bool WindowTables::WritesSharedBlock(const SequenceTable& table, int32_t committed) const {
  if (committed % block_size_ == 0) return false;
  const BlockId tail = table.blocks[committed / block_size_];
  return cache_.blocks().holds(tail, BlockHolder::kSequence) > 1;
}

WindowTables::Growth WindowTables::GrowToCompute(SequenceId id, int32_t committed,
                                                 int32_t tokens) const {
  const SequenceTable& table = Get(id);
  const int32_t blocks = std::max(BlocksFor(tokens), static_cast<int32_t>(table.blocks.size()));
  return {.committed = committed,
          .blocks = blocks,
          .first = committed / block_size_,
          .end = std::min(blocks, BlocksFor(int64_t{committed} + max_step_tokens_)),
          .copies_tail = tokens > committed && WritesSharedBlock(table, committed)};
}

WindowTables::Growth WindowTables::GrowToImport(SequenceId id, int32_t committed,
                                                int32_t tokens) const {
  const int32_t blocks = std::max(BlocksFor(tokens), static_cast<int32_t>(Get(id).blocks.size()));
  return {.committed = committed,
          .blocks = blocks,
          .first = std::max(committed / block_size_, cache_.DeadBlocks(tokens)),
          .end = blocks};
}

int32_t WindowTables::CountMissing(const SequenceTable& table, const Growth& growth) const {
  const auto size = static_cast<int32_t>(table.blocks.size());
  int32_t missing = std::max(0, growth.end - std::max(growth.first, size));
  for (int32_t i = growth.first; i < std::min(growth.end, size); ++i) {
    missing += table.blocks[i] == kNoBlock ? 1 : 0;
  }
  return missing;
}

absl::Status WindowTables::CheckRoom(SequenceId id, const Growth& growth) const {
  const SequenceTable& table = Get(id);
  if (table.is_run) return absl::OkStatus();
  const int32_t missing = CountMissing(table, growth);
  const int32_t more =
      ChargeOf(growth.blocks, growth.committed, table.held + missing) - table.charge;
  const int32_t taken = missing + (growth.copies_tail ? 1 : 0);
  const int32_t to_be_had = cache_.blocks().free_count() + cache_.evictable();
  if (taken <= to_be_had && (more <= 0 || more <= available())) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("KV group ", group_, ": needs ", taken, " more blocks and ", more, " more charged; ",
             to_be_had, " are free or evictable, ", std::max(0, available()), " of ",
             cache_.blocks().limit(), " are not charged"));
}

std::optional<BlockCopy> WindowTables::Grow(SequenceId id, const Growth& growth) {
  SequenceTable& table = Get(id);
  if (table.is_run) return std::nullopt;
  std::optional<BlockCopy> copy;
  std::vector<BlockId> fresh;
  cache_.Allocate(CountMissing(table, growth) + (growth.copies_tail ? 1 : 0), fresh);
  if (growth.copies_tail) {
    BlockId& tail = table.blocks[growth.committed / block_size_];
    copy = {.from = tail,
            .to = fresh.back(),
            .tokens = growth.committed % block_size_,
            .group = group_};
    cache_.ReleaseHold(tail, BlockHolder::kSequence);
    tail = fresh.back();
    fresh.pop_back();
  }
  table.blocks.resize(growth.blocks, kNoBlock);
  auto next = fresh.begin();
  for (int32_t i = growth.first; i < growth.end; ++i) {
    if (table.blocks[i] == kNoBlock) table.blocks[i] = *next++;
  }
  if (!fresh.empty()) {
    if (table.held == 0) table.begin = growth.first;
    table.begin = std::min(table.begin, growth.first);
    table.end = std::max(table.end, growth.end);
    table.held += static_cast<int32_t>(fresh.size());
  }
  SetCharge(table, ChargeOf(growth.blocks, growth.committed, table.held));
  return copy;
}

void WindowTables::ReleaseEntry(SequenceTable& table, int32_t at) {
  if (table.blocks[at] == kNoBlock) return;
  cache_.ReleaseHold(std::exchange(table.blocks[at], kNoBlock), BlockHolder::kSequence);
  --table.held;
}

void WindowTables::Trim(SequenceId id, int32_t committed) {
  SequenceTable& table = Get(id);
  if (table.is_run) return;
  const int32_t dead = std::min(cache_.DeadBlocks(committed), table.end);
  for (; table.begin < dead; ++table.begin) ReleaseEntry(table, table.begin);
  const int32_t ahead = BlocksFor(int64_t{committed} + max_step_tokens_);
  while (table.end > std::max(ahead, table.begin)) ReleaseEntry(table, --table.end);
  SetCharge(table, ChargeOf(static_cast<int32_t>(table.blocks.size()), committed, table.held));
}

void WindowTables::Insert(SequenceId id, int32_t first, std::span<const BlockId> full,
                          OwnerSlot owner) {
  SequenceTable& table = Get(id);
  const int32_t end = std::min(first + static_cast<int32_t>(full.size()), table.end);
  for (int32_t i = std::max(first, table.begin); i < end; ++i) {
    BlockId& own = table.blocks[i];
    if (own == kNoBlock) continue;
    const BlockId cached = cache_.At(full[i - first]);
    if (cached == kNoBlock) {
      cache_.Put(full[i - first], own, table.priority, owner);
    } else if (cached != own) {
      cache_.AddHold(cached, BlockHolder::kSequence, table.priority);
      cache_.ReleaseHold(std::exchange(own, cached), BlockHolder::kSequence);
    }
  }
}

absl::Status WindowTables::CheckRoomToFork(SequenceId parent, int32_t committed) const {
  const SequenceTable& from = Get(parent);
  const int32_t charge = BlocksFor(committed) - cache_.DeadBlocks(committed);
  if (from.is_run || charge <= available()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("KV group ", group_, ": a fork of ", committed, " tokens needs ", charge, " blocks, ",
             std::max(0, available()), " of ", cache_.blocks().limit(), " are available"));
}

void WindowTables::Fork(SequenceId parent, SequenceId child, int32_t committed) {
  const SequenceTable& from = Get(parent);
  SequenceTable table;
  table.priority = from.priority;
  const int32_t dead = cache_.DeadBlocks(committed), blocks = BlocksFor(committed);
  table.blocks.assign(blocks, kNoBlock);
  table.begin = dead;
  table.end = blocks;
  for (int32_t i = dead; i < blocks; ++i) {
    table.blocks[i] = from.blocks[i];
    cache_.AddHold(table.blocks[i], BlockHolder::kSequence, table.priority);
  }
  table.held = blocks - dead;
  SetCharge(table, table.held);
  CHECK(tables_.emplace(child, std::move(table)).second) << "already exists: sequence " << child;
}

void WindowTables::Release(SequenceId id) {
  SequenceTable& table = Get(id);
  // In reverse order, so that a later eviction shortens a prefix instead of making a hole in it.
  for (int32_t i = table.end; i-- > table.begin;) ReleaseEntry(table, i);
  SetCharge(table, 0);
  tables_.erase(id);
}

int32_t WindowTables::LongestWhole(SequenceId id, int32_t committed, int32_t tokens) const {
  const SequenceTable& table = Get(id);
  while (tokens > committed) {
    // Finds the last missing entry among those that the token after `tokens` sees.
    int32_t at = BlocksFor(tokens) - 1;
    const int32_t dead = cache_.DeadBlocks(tokens);
    while (at >= dead && table.blocks[at] != kNoBlock) --at;
    if (at < dead) return tokens;
    tokens = std::max(committed, at * block_size_);
  }
  return committed;
}

// ---- checks -------------------------------------------------------------------------------------

absl::Status WindowTables::CheckSequence(SequenceId id, int32_t committed,
                                         std::span<const BlockId> full,
                                         int32_t shared_blocks) const {
  const auto broken = [&](std::string_view what, int64_t at) {
    return absl::InternalError(
        StrCat("sequence ", id.value(), ", KV group ", group_, ": ", what, at));
  };
  const SequenceTable& table = Get(id);
  const auto size = static_cast<int32_t>(table.blocks.size());
  if (size != static_cast<int32_t>(full.size())) return broken("the table has length ", size);
  int32_t held = 0;
  for (int32_t i = 0; i < size; ++i) {
    const BlockId block = table.blocks[i];
    const bool seen = i >= cache_.DeadBlocks(committed) && i < BlocksFor(committed);
    if (block == kNoBlock) {
      if (seen) return broken("lacks a block that the next token sees: ", i);
      continue;
    }
    ++held;
    if (i < table.begin || i >= table.end) return broken("holds a block outside [begin, end): ", i);
    const BlockId beside = cache_.FullOf(block);
    if (beside != kNoBlock && (i >= shared_blocks || beside != full[i])) {
      return broken("is cached beside another full block: ", i);
    }
  }
  if (held != table.held) return broken("wrong count of held blocks: ", held);
  if (held > table.charge) return broken("holds more blocks than its charge: ", held);
  return absl::OkStatus();
}

absl::Status WindowTables::CheckConservation() const {
  RETURN_IF_ERROR(cache_.CheckInvariants());
  std::vector<uint32_t> tables(cache_.blocks().capacity());
  int32_t charged = 0;
  for (const auto& [id, table] : tables_) {
    charged += table.charge;
    for (const BlockId block : table.blocks) {
      if (block != kNoBlock) ++tables[block.value()];
    }
  }
  for (int32_t i = 0; i < cache_.blocks().capacity(); ++i) {
    const uint32_t holds = cache_.blocks().holds(BlockId(i), BlockHolder::kSequence);
    if (holds == tables[i]) continue;
    return absl::InternalError(StrCat("KV group ", group_, ": block ", i, " is in ", tables[i],
                                      " tables but has ", holds, " sequence holds"));
  }
  if (charged == charged_) return absl::OkStatus();
  return absl::InternalError(
      StrCat("KV group ", group_, ": counts ", charged_, " charged, recount finds ", charged));
}

}  // namespace baton
