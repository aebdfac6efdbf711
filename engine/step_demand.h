// Which of a step's chunks somebody still wants, while the step runs: not those whose request was
// cancelled or is past its deadline.
//
// The step's work ends behind the last chunk that is wanted (model/step_rows.h). A chunk that
// nobody wants, but with a wanted one behind it, is computed with the others: its rows cannot be
// left out without moving theirs. Decode rows come first and prefills behind them, by priority, so
// what goes on for nothing is little work, or work of more importance.
//
// Thread safety: the runner's thread while the step runs, the engine thread after that.
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
    RequestHandle request = 0;  // by which it is cancelled
    int64_t deadline_us = 0;    // 0: none
  };

  // `board` and `clock` outlive this; `board` may be null: then nothing is ever cancelled.
  StepDemand(std::vector<Chunk> chunks, const PendingCancellations* pending, const Clock* clock);

  // Looks again. How many chunks there are up to the last wanted one; never rises. Takes no lock
  // while nothing new was cancelled.
  int32_t Update();
  // As Update said last; at first all.
  int32_t wanted() const { return wanted_; }
  // Why nobody wants this one: Cancelled or DeadlineExceeded; OK when somebody does. A chunk behind
  // the wanted ones stays as it was.
  absl::Status WhyUnwanted(int32_t chunk) const;

 private:
  absl::Status Look(const Chunk& chunk) const;

  const std::vector<Chunk> chunks_;
  const PendingCancellations* const pending_cancellations_;
  const Clock* const clock_;
  std::vector<absl::Status> why_;  // of those behind wanted_, the last first
  int32_t wanted_;
  std::optional<uint64_t> seen_additions_;
};

}  // namespace baton
