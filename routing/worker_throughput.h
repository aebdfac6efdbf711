// Learned speed of one worker, from its finished requests. Routing uses it to convert tokens, bytes
// and batch sizes to microseconds.
//
// Five lines, each a LineFit:
//   prefill     us for a token against the token's position (attention reads all tokens before it)
//   transfer    us against bytes
//   decode      us for a step against the sequences in the batch
//   hand-off    us between the end of prefill and the first token, besides the transfer
//   pull        us of a prefix pull, besides its bytes
// The priors describe a small model on a few CPU cores. One or two requests replace them.
//
// Pure. Not thread-safe.
#pragma once

#include <cstdint>

#include "routing/line_fit.h"

namespace baton {

class WorkerThroughput {
 public:
  WorkerThroughput();

  // Tokens [cached, cached + computed) of a prompt took `prefill_us`, from the start of the first
  // chunk to the end of the last. Short pieces have a low weight, because the fixed cost of a step
  // distorts them.
  void ObservePrefill(int64_t cached, int64_t computed, int64_t prefill_us);
  void ObserveTransfer(int64_t bytes, int64_t transfer_us);
  // A sequence in a batch of `batch` sequences, itself included, took `step_us` for a token.
  void ObserveStep(int64_t batch, int64_t step_us);
  void ObserveHandOff(int64_t hand_off_us);
  void ObservePull(int64_t pull_us);  // without the time of its bytes

  // Time to compute tokens [cached, total) of a prompt. 0 if there are none.
  double PrefillUs(int64_t cached, int64_t total) const;
  // 0 for no bytes.
  double TransferUs(int64_t bytes) const;
  double StepUs(int64_t batch) const;
  double HandOffUs() const;
  double PullUs() const;  // without the time of its bytes

  // Number of observed prefills, as a sum of weights.
  double observed() const { return prefill_.observed(); }

  // Takes the throughput of `fleet` as the prior: what counts until this worker has a few
  // observations of its own.
  void SetPrior(const WorkerThroughput& fleet);

 private:
  LineFit prefill_;
  LineFit transfer_;
  LineFit step_;
  LineFit hand_off_;
  LineFit pull_;
};

}  // namespace baton
