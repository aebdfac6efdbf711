#include "engine/kv_group_status.h"

namespace baton {

std::vector<KvGroupStatus> KvGroupStatuses(const KvPoolLayout& layout, const KvCacheManager& cache,
                                           const KvCacheStats& stats) {
  std::vector<KvGroupStatus> groups;
  groups.reserve(static_cast<size_t>(layout.groups()));
  for (int32_t at = 0; at < layout.groups(); ++at) {
    const KvLayout& group = layout.group(at);
    KvGroupStatus& status = groups.emplace_back();
    status.kind = group.group().kind;
    status.window = group.group().window;
    status.layers = group.group().layers;
    status.bytes_per_block = group.bytes_per_block();
    status.size = {.before = cache.num_blocks(at),
                   .limit = cache.num_blocks(at),
                   .reserved = cache.max_blocks(at),
                   .retiring = cache.retiring_blocks(at)};
    if (at == 0) {
      status.blocks = stats.blocks;
      status.evictable = stats.evictable;
      status.evicted_blocks = stats.evicted_blocks;
    } else {
      const WindowStats& window = stats.windows[static_cast<size_t>(at) - 1];
      status.blocks = window.blocks;
      status.evictable = window.evictable;
      status.evicted_blocks = window.evicted_blocks;
    }
  }
  return groups;
}

}  // namespace baton
