#include "model/block_copy_runs.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "model/kv_heads.h"

namespace baton {
namespace {

using GroupBlock = std::pair<int32_t, int32_t>;  // KV group, block

}  // namespace

std::vector<std::vector<ByteRun>> BlockCopyRuns(std::span<const BlockCopy> copies,
                                                const KvPoolLayout& layout, TensorRank rank) {
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
    AppendKvHeadRuns(layout, copy, HeadsOf(rank, layout.group(copy.group)), lists.back());
  }
  return lists;
}

}  // namespace baton
