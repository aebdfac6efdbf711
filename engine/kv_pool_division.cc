#include "engine/kv_pool_division.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr int64_t kCachedShare = 8;  // one block for every 8 blocks of group 0

// Largest number of blocks that `slots` consecutive slots can touch.
int64_t BlocksTouched(int64_t slots, int64_t block_size) {
  return (slots + 2 * block_size - 2) / block_size;
}

}  // namespace

KvPoolDivision::KvPoolDivision(const KvCacheSpec& spec, std::vector<int64_t> bytes_per_block,
                               const EngineOptions& options)
    : bytes_per_block_(std::move(bytes_per_block)), paged_(options.paged) {
  const int64_t others = int64_t{options.max_running} - 1;
  for (size_t at = 1; at < spec.groups.size(); ++at) {
    const int64_t before = int64_t{spec.groups[at].window} - 1;  // slots that the next token sees
    running_blocks_.push_back(
        BlocksTouched(before + MaxStepTokens(options), options.block_size) +
        others * BlocksTouched(before + options.steps_in_flight, options.block_size));
  }
}

BlockCounts KvPoolDivision::BlocksFor(int32_t full) const {
  BlockCounts blocks(full);
  for (size_t at = 0; at < running_blocks_.size(); ++at) {
    const int64_t wanted = paged_ ? running_blocks_[at] + full / kCachedShare : full;
    blocks[static_cast<int32_t>(at) + 1] = static_cast<int32_t>(std::min<int64_t>(full, wanted));
  }
  return blocks;
}

int64_t KvPoolDivision::BytesOf(const BlockCounts& blocks) const {
  int64_t bytes = 0;
  for (size_t at = 0; at < bytes_per_block_.size(); ++at) {
    bytes += blocks[static_cast<int32_t>(at)] * bytes_per_block_[at];
  }
  return bytes;
}

int64_t KvPoolDivision::MostIn(int64_t bytes) const {
  // With one group this is the result, without a search. The cap keeps the search within int32.
  int64_t most = std::min(bytes / bytes_per_block_.front(), int64_t{kMaxKvBlocks} + 1);
  for (int64_t least = 0; running_blocks_.size() > 0 && least < most;) {
    const int64_t middle = least + (most - least + 1) / 2;
    if (BytesOf(BlocksFor(static_cast<int32_t>(middle))) <= bytes) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return most;
}

}  // namespace baton
