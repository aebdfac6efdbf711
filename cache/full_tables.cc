#include "cache/full_tables.h"

#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

FullTables::SequenceTable& FullTables::Get(SequenceId id) {
  const auto it = tables_.find(id);
  CHECK(it != tables_.end()) << "no KV of sequence " << id;
  return it->second;
}

const FullTables::SequenceTable& FullTables::Get(SequenceId id) const {
  const auto it = tables_.find(id);
  CHECK(it != tables_.end()) << "no KV of sequence " << id;
  return it->second;
}

void FullTables::Add(SequenceId id, SequenceTable table) {
  CHECK(tables_.emplace(id, std::move(table)).second) << "sequence " << id << " already exists";
}

// ---- begin, grow, commit, insert, release ------------------------------------------------------

void FullTables::Begin(SequenceId id, RadixMatch match) {
  SequenceTable table;
  cache_.blocks().AddHolds(match.blocks, BlockHolder::kSequence);
  table.lock = std::move(match.lock);
  table.blocks = std::move(match.blocks);
  table.shared_blocks = static_cast<int32_t>(table.blocks.size());
  table.matched = table.committed = table.shared_blocks * block_size_;
  Add(id, std::move(table));
}

bool FullTables::BeginRun(SequenceId id, int32_t blocks) {
  SequenceTable table;
  if (!cache_.blocks().AllocateRun(blocks, BlockHolder::kSequence, table.blocks)) return false;
  Add(id, std::move(table));
  return true;
}

void FullTables::Fork(SequenceId parent, SequenceId child) {
  const SequenceTable& from = Get(parent);
  SequenceTable table;
  table.matched = table.committed = from.committed;
  table.shared_blocks = from.shared_blocks;
  table.blocks.assign(from.blocks.begin(), from.blocks.begin() + BlocksFor(from.committed));
  table.private_units = from.private_units;
  if (from.lock) table.lock = cache_.tree().Duplicate(from.lock);
  cache_.blocks().AddHolds(table.blocks, BlockHolder::kSequence);
  Add(child, std::move(table));
}

std::optional<BlockCopy> FullTables::Grow(SequenceId id, Missing missing) {
  SequenceTable& table = Get(id);
  BlockAllocator& allocator = cache_.blocks();
  std::optional<BlockCopy> copy;
  if (missing.copies_tail) {
    BlockId& tail = table.blocks[table.committed / block_size_];
    const std::optional<BlockId> own = allocator.MakeWritable(tail, BlockHolder::kSequence);
    CHECK(own.has_value());
    copy = {.from = tail, .to = *own, .tokens = table.committed % block_size_};
    tail = *own;
  }
  const int32_t more = missing.blocks - (missing.copies_tail ? 1 : 0);
  CHECK(allocator.Allocate(more, BlockHolder::kSequence, table.blocks));
  return copy;
}

void FullTables::Commit(SequenceId id, std::span<const CacheUnit> units) {
  SequenceTable& table = Get(id);
  const int64_t committed = table.committed + static_cast<int64_t>(units.size());
  CHECK_LE(committed, static_cast<int64_t>(table.blocks.size()) * block_size_)
      << "sequence " << id << " commits more than it reserved";
  table.committed = static_cast<int32_t>(committed);
  if (keeps_units_) {
    table.private_units.insert(table.private_units.end(), units.begin(), units.end());
  }
}

FullTables::Inserted FullTables::Insert(SequenceId id) {
  SequenceTable& table = Get(id);
  const int32_t full_blocks = table.committed / block_size_;
  const int32_t count = full_blocks - table.shared_blocks;
  if (count <= 0) return {};
  const auto units = std::span(table.private_units).first(size_t(count) * block_size_);
  const auto blocks = std::span(table.blocks).subspan(table.shared_blocks, count);
  const std::vector<BlockId> own(blocks.begin(), blocks.end());
  const int32_t present = cache_.tree().Insert(table.lock, units, blocks);
  for (int32_t i = 0; i < present; ++i) {
    cache_.blocks().AddHold(blocks[i], BlockHolder::kSequence);
    cache_.blocks().ReleaseHold(own[i], BlockHolder::kSequence);
  }
  table.private_units.erase(table.private_units.begin(),
                            table.private_units.begin() + units.size());
  const int32_t first = std::exchange(table.shared_blocks, full_blocks);
  return {.first = first, .count = count, .fresh = count - present, .committed = table.committed};
}

bool FullTables::NextIsInTree(SequenceId id) const {
  const SequenceTable& table = Get(id);
  if (table.committed / block_size_ == table.shared_blocks) return false;
  return cache_.tree().HasBehind(table.lock, std::span(table.private_units).first(block_size_));
}

FullTables::Released FullTables::Release(SequenceId id, bool forgets) {
  SequenceTable table = std::move(Get(id));
  tables_.erase(id);
  cache_.blocks().ReleaseHolds(table.blocks, BlockHolder::kSequence);
  if (forgets && table.lock) {  // a part of a chunked prompt has no lock (BeginPart)
    cache_.tree().Forget(std::move(table.lock));
  } else {
    table.lock.Drop();
  }
  return {.committed = table.committed, .blocks = static_cast<int32_t>(table.blocks.size())};
}

// ---- counts and checks -------------------------------------------------------------------------

absl::flat_hash_set<SequenceId> FullTables::sequences() const {
  absl::flat_hash_set<SequenceId> ids;
  for (const auto& [id, table] : tables_) ids.insert(id);
  return ids;
}

FullTables::Slots FullTables::CountSlots() const {
  Slots slots;
  for (const auto& [id, table] : tables_) {
    slots.reserved += int64_t{block_size_} * static_cast<int64_t>(table.blocks.size());
    slots.committed += table.committed;
  }
  return slots;
}

absl::Status FullTables::CheckSequence(SequenceId id, const SequenceTable& table,
                                       bool shares_full_blocks) const {
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("sequence ", id.value(), ": ", what));
  };
  const int32_t shared_tokens = table.shared_blocks * block_size_;
  if (table.committed > capacity(id)) return broken("more tokens committed than reserved");
  if (shared_tokens > table.committed) return broken("shares blocks that are not committed");
  if (keeps_units_ && table.private_units.size() != table.committed - shared_tokens) {
    return broken("stored units differ from the committed tokens in number");
  }
  // Forks share the blocks of the parent's committed tokens, full blocks only through the tree if
  // any.
  const int32_t first_alone = BlocksFor(table.committed);
  const int32_t first_shared =
      shares_full_blocks ? table.committed / block_size_ : table.shared_blocks;
  for (int32_t i = 0; i < static_cast<int32_t>(table.blocks.size()); ++i) {
    if (cache_.tree().ContainsBlock(table.blocks[i]) != (i < table.shared_blocks)) {
      return broken(StrCat("block ", i, " is on the wrong side of the shared prefix"));
    }
    const bool may_share = i < table.shared_blocks || (i >= first_shared && i < first_alone);
    if (!may_share && cache_.blocks().holds(table.blocks[i], BlockHolder::kSequence) != 1) {
      return broken(StrCat("private block ", i, " is also held by another sequence"));
    }
  }
  return absl::OkStatus();
}

absl::Status FullTables::CheckConservation(bool shares_full_blocks) const {
  const BlockAllocator& allocator = cache_.blocks();
  std::vector<uint32_t> tables(allocator.capacity());
  for (const auto& [id, table] : tables_) {
    RETURN_IF_ERROR(CheckSequence(id, table, shares_full_blocks));
    for (const BlockId block : table.blocks) ++tables[block.value()];
  }
  for (int32_t i = 0; i < allocator.capacity(); ++i) {
    const uint32_t holds = allocator.holds(BlockId(i), BlockHolder::kSequence);
    if (holds == tables[i]) continue;
    return absl::InternalError(
        StrCat("block ", i, " is in ", tables[i], " tables but has ", holds, " sequence holds"));
  }
  return absl::OkStatus();
}

}  // namespace baton
