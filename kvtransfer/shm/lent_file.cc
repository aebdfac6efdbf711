#include "kvtransfer/shm/lent_file.h"

#include <atomic>
#include <optional>

#include "absl/status/status.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<LentFile> LentFile::Create(const TransferPool& pool) {
  const std::optional<PoolExport> exported = pool.exported();
  if (!exported) {
    return absl::InvalidArgumentError("the pool has no export: other processes cannot map it");
  }
  const size_t bytes = static_cast<size_t>(exported->layout->total_blocks()) * sizeof(uint64_t);
  ASSIGN_OR_RETURN(SharedPageBuffer generations,
                   SharedPageBuffer::Allocate(bytes, "block generations"));
  return LentFile(*exported, std::move(generations));
}

void LentFile::SetPlaces(const GroupBlocks& blocks, SharedBlockFrame& frame) const {
  const auto* const generations = reinterpret_cast<const uint64_t*>(generations_.data());
  for (int32_t group = 0; group < layout().groups(); ++group) {
    const BlockId block = blocks[group];
    if (block == kNoBlock) continue;
    const SharedPlace place{.pool_block = block.value(),
                            .generation = generations[NumberOf(block, group)]};
    if (group == 0) {
      frame.place = place;
    } else {
      frame.windows.push_back(place);
    }
  }
}

void LentFile::EndLoan(int64_t number) {
  uint64_t& generation = reinterpret_cast<uint64_t*>(generations_.data())[number];
  std::atomic_ref(generation).fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace baton
