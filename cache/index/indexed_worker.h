// Workers and tiers as the router's indexes know them.
#pragma once

#include <cstdint>

#include "common/strong_int.h"

namespace baton {

// A worker as the index's user numbers them. A restarted worker is another one.
using IndexedWorker = StrongInt<struct IndexedWorkerTag, uint32_t>;

// Where a worker keeps a block, the fastest first.
enum class CacheTier : uint8_t { kDevice = 0, kHost = 1, kDisk = 2 };
inline constexpr int kCacheTiers = 3;

}  // namespace baton
