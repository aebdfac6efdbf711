// How fast a worker is, learned from its finished requests: what routing turns tokens, bytes and
// neighbours into microseconds with.
//
// Five lines, each a LineFit:
//   prefill     us a token against the token's position (attention reads all before it)
//   transfer    us against bytes
//   decode      us a step against the sequences in the batch
//   hand-off    us between prefill's end and the first token that neither is: calls, tickets
//   pull        us that a pull of a cached prefix takes beside its bytes: calls, waiting for steps
// The priors are those of a small model on a few CPU cores; a request or two replace them.
//
// Pure; not thread-safe: belongs to its host.
#pragma once

#include <cstdint>

#include "routing/line_fit.h"

namespace baton {

class WorkerThroughput {
 public:
  WorkerThroughput();

  // Tokens [cached, cached + computed) of a prompt took `prefill_us`, first chunk begun to last
  // chunk done. Short pieces tell little, since a step has costs of its own, and count little.
  void ObservePrefill(int64_t cached, int64_t computed, int64_t prefill_us);
  void ObserveTransfer(int64_t bytes, int64_t transfer_us);
  // A sequence that decoded among `batch` sequences (itself included) took so long for a token.
  void ObserveStep(int64_t batch, int64_t step_us);
  void ObserveHandOff(int64_t hand_off_us);
  void ObservePull(int64_t pull_us);  // without its bytes' time

  // Computing tokens [cached, total) of a prompt. 0 when there are none.
  double PrefillUs(int64_t cached, int64_t total) const;
  // 0 for no bytes.
  double TransferUs(int64_t bytes) const;
  double StepUs(int64_t batch) const;
  double HandOffUs() const;
  double PullUs() const;  // without its bytes' time

  // Prefills that were learned from.
  double observed() const { return prefill_.observed(); }

  // What to believe of a new worker in a fleet that is like this.
  WorkerThroughput AsPrior() const;

 private:
  LineFit prefill_;
  LineFit transfer_;
  LineFit step_;
  LineFit hand_off_;
  LineFit pull_;
};

}  // namespace baton
