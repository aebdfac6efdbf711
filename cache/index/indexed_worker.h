// Worker numbers and cache tiers in the router's indexes.
#pragma once

#include <cstdint>

#include "common/strong_int.h"

namespace baton {

// A worker's number, assigned by the index's user. A restarted worker gets another number.
using IndexedWorker = StrongInt<struct IndexedWorkerTag, uint32_t>;

// Where a worker stores a block. The fastest tier is first.
enum class CacheTier : uint8_t { kDevice = 0, kHost = 1, kDisk = 2 };
inline constexpr int kCacheTiers = 3;

}  // namespace baton
