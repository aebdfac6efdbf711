// When cached blocks are evicted ahead of need, and how many.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

namespace baton {

// Shares of a pool. Above the first, blocks are evicted until the second is reached. REQUIRES:
// 0 < low <= high <= 1.
struct WaterMarks {
  double high = 1.0;
  double low = 1.0;

  // How many of `used` blocks are too many in a pool of `limit`.
  int32_t Excess(int32_t used, int32_t limit) const {
    return used > high * limit ? used - static_cast<int32_t>(low * limit) : 0;
  }
};

}  // namespace baton
