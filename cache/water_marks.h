// Watermarks for evicting cached blocks before they are needed.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

namespace baton {

// Shares of a pool. Above `high`, blocks are evicted until `low` is reached. REQUIRES: 0 < low <=
// high <= 1.
struct WaterMarks {
  double high = 1.0;
  double low = 1.0;

  // Number of blocks to evict if `used` blocks of a pool of `limit` are in use.
  int32_t Excess(int32_t used, int32_t limit) const {
    return used > high * limit ? used - static_cast<int32_t>(low * limit) : 0;
  }
};

}  // namespace baton
