// What a route costs, in microseconds until the first token, as far as one can know before.
//
//   prefill on a prefill worker: its backlog + its uncached tokens at its measured speed
//                                + the bytes that the decode worker lacks, at its measured
//                                bandwidth + the measured hand-off
//   prefill on the decode worker: its backlog + its uncached tokens at its measured speed, and
//                                `local_prefill_penalty` times that again when the tokens are
//                                neither few nor a next turn
//   either way:                  decode_weight × the time that the answer will take to decode among
//                                the sequences there, at the measured time of a step
//
// What a worker would compute or pull although another one has it will serve the prompts that wait
// for it there as well, so its price is shared with them: divided by 1 + the prompts of the same
// held prefix that wait where fewest do, of the workers that have most of it. A hot prefix so
// replicates once some prompts queue for it, though for each alone waiting would cost less.
//
// A pool that cannot hold the prompt makes a worker the last choice, but still one: the report may
// be old. Where a missing prefix can be pulled from another worker's cache for less than computing
// it, the pull's time counts instead. It keeps nobody waiting but its own request, so it has a
// weight of its own, and is no part of the work that the worker is given.
//
// The form follows NVIDIA Dynamo's router (overlap against load) with weights replaced by measured
// speeds, so that nothing has to be tuned to the hardware.
//
// Workers are those of the fleet it was made from, by reference and not copies.
//
// Thread safety: plain data over what it was made from, which must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "routing/routing_policy.h"

namespace baton {

class RouteCost {
 public:
  RouteCost(const RoutingOptions& options, const RoutingInput& input, const FleetView& fleet);

  // Prompt tokens that this worker would have to compute: at least one.
  int64_t Uncached(const WorkerRecord& worker) const;
  // Until this worker, as the one that prefills, has computed the prompt.
  double PrefillUs(const WorkerRecord& worker) const;
  // From the prompt's KV on `prefill` to the first token on `decode`.
  double HandOffUs(const WorkerRecord& decode) const;
  // What the answer costs on `decode`, and no room for the prompt.
  double DecodeUs(const WorkerRecord& decode) const;

  double RemoteUs(const WorkerRecord& decode, const WorkerRecord& prefill) const {
    return PrefillUs(prefill) + HandOffUs(decode) + DecodeUs(decode);
  }
  // `prefill`: the prefill worker that would help otherwise; null when there is none.
  double LocalUs(const WorkerRecord& decode, const WorkerRecord* prefill) const;
  // REQUIRES: placement is automatic.
  bool ComputesLocally(const WorkerRecord& decode, const WorkerRecord& prefill) const;
  // Whether this decode worker holds most of the prompt, and lacks no more than a next turn may.
  bool MayStay(const WorkerRecord& decode) const;
  // Whether there is no more to do at `a` than at `b`.
  bool WaitsNoLonger(const WorkerRecord& a, const WorkerRecord& b) const;

  // The plan with its pull and its work.
  RoutePlan Plan(const WorkerRecord& decode, const WorkerRecord* prefill) const;

 private:
  // What is looked up once for every worker of the fleet.
  struct Known {
    int64_t cached;  // prompt tokens that it will use, all but one at most
    const WorkerThroughput* speeds;
  };

  const Known& Of(const WorkerRecord& worker) const { return known_[&worker - &fleet_.workers[0]]; }
  int64_t Cached(const WorkerRecord& worker) const { return Of(worker).cached; }
  bool HasRoom(const WorkerRecord& worker) const;
  bool Continues(const WorkerRecord& decode, const WorkerRecord& prefill) const;
  // The cheapest way to the prompt's KV on a worker.
  struct Way {
    std::optional<PrefixPull> pull;
    double compute_us;  // of what is not pulled
  };
  Way WayOn(const WorkerRecord& worker) const;
  double CostOf(const Way& way) const;
  double SharedCostOf(const WorkerRecord& worker, const Way& way) const;
  void FindHeld();
  const WorkerRecord* SourceFor(const WorkerRecord& worker) const;
  double PullUs(const WorkerRecord& worker, int64_t tokens) const;
  int64_t KvBytes(const WorkerRecord& worker, int64_t tokens) const;

  const RoutingOptions& options_;
  const RoutingInput& input_;
  const FleetView& fleet_;
  absl::InlinedVector<Known, 64> known_;  // in the fleet's order
  // The two workers of one kind that have most of the prompt: no worker pulls from itself.
  struct Holders {
    const WorkerRecord* most = nullptr;
    const WorkerRecord* second = nullptr;
  };
  bool IsBetterSource(const WorkerRecord& a, const WorkerRecord& b) const;
  void Offer(const WorkerRecord& worker);
  absl::InlinedVector<Holders, 2> holders_;  // only for pulls
  int64_t held_ = 0;     // tokens of the prompt that the best of those that compute has
  int64_t waiting_ = 0;  // prompts of the same held prefix, on the one of them with fewest
};

}  // namespace baton
