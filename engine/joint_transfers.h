// What several transfers of one request moved. Their times may overlap.
//
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kvtransfer/transport.h"

namespace baton {

class JointTransfers {
 public:
  // Adds a transfer that has ended. `now_us` never decreases.
  void Add(const TransferEvent& event, int64_t now_us) {
    bytes_ += event.bytes;
    busy_us_ += std::min(event.busy_us, now_us - busy_until_us_);
    busy_until_us_ = now_us;
  }
  int64_t bytes() const { return bytes_; }
  // Time in which at least one of them was busy, as far as the ends of the transfers tell.
  int64_t busy_us() const { return busy_us_; }

 private:
  int64_t bytes_ = 0;
  int64_t busy_us_ = 0;
  int64_t busy_until_us_ = 0;
};

}  // namespace baton
