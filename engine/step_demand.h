// Tells a running step which of its chunks are still wanted. A chunk is unwanted if its request was
// cancelled or is past its deadline.
//
// The step computes only up to the last wanted chunk (model/step_rows.h). An unwanted chunk before
// a wanted one is still computed: leaving out its rows would move the rows after it. This wastes
// little. Decode rows come first and are small; prefills follow in order of priority.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "engine/pending_cancellations.h"
#include "engine/request.h"

namespace baton {

class StepDemand {
 public:
  struct Chunk {
    RequestHandle request = 0;  // handle by which it is cancelled
    int64_t deadline_us = 0;    // 0: none
  };

  // `pending` and `clock` must outlive this. `pending` may be null: then nothing is ever cancelled.
  StepDemand(std::vector<Chunk> chunks, const PendingCancellations* pending, const Clock* clock);

  // Checks again. Returns the number of chunks up to the last wanted one, which never rises. Takes
  // no lock unless a request was cancelled since the last call.
  int32_t Update();
  // Result of the last Update; initially all chunks.
  int32_t wanted() const { return wanted_; }
  // Reason why the chunk is unwanted: Cancelled or DeadlineExceeded; OK if it is wanted. For chunks
  // after wanted() the reason is fixed.
  absl::Status WhyUnwanted(int32_t chunk) const;

 private:
  absl::Status Look(const Chunk& chunk) const;

  const std::vector<Chunk> chunks_;
  const PendingCancellations* const pending_cancellations_;
  const Clock* const clock_;
  std::vector<absl::Status> why_;  // of the chunks after wanted_, the last chunk first
  int32_t wanted_;
  std::optional<uint64_t> seen_additions_;
};

}  // namespace baton
