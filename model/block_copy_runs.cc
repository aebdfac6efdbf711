#include "model/block_copy_runs.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace baton {
namespace {

using GroupBlock = std::pair<int32_t, int32_t>;  // KV group, block

// Appends a run for each piece. The leading slots of a piece are contiguous, with their scales.
void AppendRuns(const BlockCopy& copy, const KvPoolLayout& layout, std::vector<ByteRun>& runs) {
  const KvLayout& group = layout.group(copy.group);
  const int64_t part = layout.offset(copy.group);
  for (int32_t layer = 0; layer < group.group().layers; ++layer) {
    for (int32_t plane = 0; plane < group.planes(); ++plane) {
      const int64_t bytes_per_token = group.token_stride(plane) * KvTypeBytes(group.group().type);
      runs.push_back({.from = part + group.PieceOffset(layer, plane, copy.from.value()),
                      .to = part + group.PieceOffset(layer, plane, copy.to.value()),
                      .bytes = copy.tokens * bytes_per_token});
    }
  }
}

}  // namespace

std::vector<std::vector<ByteRun>> BlockCopyRuns(std::span<const BlockCopy> copies,
                                                const KvPoolLayout& layout) {
  std::vector<std::vector<ByteRun>> lists;
  // Blocks of the last list.
  absl::flat_hash_set<GroupBlock> read;
  absl::flat_hash_set<GroupBlock> written;
  for (const BlockCopy& copy : copies) {
    const GroupBlock from{copy.group, copy.from.value()};
    const GroupBlock to{copy.group, copy.to.value()};
    if (lists.empty() || written.contains(from) || written.contains(to) || read.contains(to)) {
      lists.emplace_back();
      read.clear();
      written.clear();
    }
    read.insert(from);
    written.insert(to);
    AppendRuns(copy, layout, lists.back());
  }
  return lists;
}

}  // namespace baton
