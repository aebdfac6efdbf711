#include "worker_rpc/freed_blocks.h"

#include <utility>

namespace baton {

bool FreedBlocks::Changed(const EngineStatus& status) {
  const auto& blocks = status.cache.blocks;
  const bool in_use = blocks.owned + blocks.in_transfer + blocks.step > 0;
  const bool was_in_use = std::exchange(in_use_, in_use);
  const bool failed = std::exchange(failures_, status.failures) != status.failures;
  return failed || (was_in_use && !in_use);
}

}  // namespace baton
