#include "model/block_table_mirror.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// Ranges with a smaller gap become one copy, because a copy costs more than a few entries.
constexpr int64_t kJoinGap = 64;

}  // namespace

BlockTableMirror::BlockTableMirror(int32_t* device_table, int32_t rows, int64_t stride,
                                   BlockId scratch)
    : device_table_(device_table),
      stride_(stride),
      scratch_(scratch.value()),
      mirror_(rows * stride, 0) {}

void BlockTableMirror::SetRow(int32_t row, std::span<const BlockId> table) {
  CHECK_LE(static_cast<int64_t>(table.size()), stride_);
  const int64_t base = row * stride_;
  for (size_t i = 0; i < table.size(); ++i) {
    const int64_t entry = base + static_cast<int64_t>(i);
    if (mirror_[entry] == table[i].value()) continue;
    const int32_t block = table[i] == kNoBlock ? scratch_ : table[i].value();
    if (mirror_[entry] == block) continue;
    mirror_[entry] = block;
    if (!dirty_.empty() && entry >= dirty_.back().end && entry - dirty_.back().end < kJoinGap) {
      dirty_.back().end = entry + 1;
    } else {
      dirty_.push_back({entry, entry + 1});
    }
  }
}

void BlockTableMirror::Upload(InputCopies& copies, StagingSlot& slot) {
  for (const DirtyRange& range : dirty_) {
    const size_t bytes = static_cast<size_t>(range.end - range.begin) * sizeof(int32_t);
    copies.Add(device_table_ + range.begin, slot.Put(mirror_.data() + range.begin, bytes), bytes);
    uploaded_entries_ += range.end - range.begin;
    ++uploads_;
  }
  dirty_.clear();
}

}  // namespace baton
