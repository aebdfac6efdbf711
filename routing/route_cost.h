// Estimates the cost of a route: microseconds until the first token.
//
//   prefill on a prefill worker:   its backlog
//                                + its uncached tokens at its measured speed
//                                + the bytes that the decode worker lacks at its measured bandwidth
//                                + the measured hand-off time
//   prefill on the decode worker:  its backlog
//                                + its uncached tokens at its measured speed
//                                + local_prefill_penalty × the same time, unless the tokens are
//                                  few or a next turn
//   on a worker that decodes:    + answer_delay_weight × its uncached tokens' time × the answers
//                                  that it decodes now, each of which waits for that time
//   in all cases:                + decode_weight × the time to decode the answer in the worker's
//                                  batch, at its measured step time
//   where other routers are      + away_weight × routers ÷ workers (at most 1/2) × a mean prompt's
//   at home:                       time × the others' share of the running requests
//
// Routers hear of each other's prompts only after some time. In a burst, all would choose the same
// workers. So each usable worker is the home of one router (or of some, if there are more routers
// than workers of its role). A router expects company elsewhere. The others' share is 1 if all
// routers have equally many requests, and 0 if this one has them all.
//
// If a worker computes or pulls a prefix that another worker has, waiting prompts with that prefix
// benefit too. So the price is shared with them: divided by 1 + the number of prompts that wait for
// the same held prefix. Of the workers with the most of it, the one with the fewest such prompts
// counts. So a hot prefix replicates once some prompts queue for it, although waiting would be
// cheaper for each prompt alone.
//
// A worker whose pool cannot hold the prompt is the last choice, but still possible, because its
// report may be old. If pulling a missing prefix from another worker's cache is cheaper than
// computing it, the pull's time counts instead. A pull delays only its own request. So it has its
// own weight, and is not part of the worker's assigned work. Of a chunked prompt, the chunks that
// one other worker has are pulled. Only the kChunkSources workers with the most of them are
// considered.
//
// The form follows NVIDIA Dynamo's router (overlap against load). Measured speeds replace its
// weights, so nothing needs tuning to the hardware.
//
// Every WorkerRecord argument must be a reference into the fleet of the constructor, not a copy,
// and one of its candidates.
//
// Thread safety: used by one thread at a time. REQUIRES: the constructor's arguments outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "routing/routing_policy.h"

namespace baton {

class RouteCost {
 public:
  static constexpr size_t kChunkSources = 4;

  RouteCost(const RoutingOptions& options, const RoutingInput& input, const FleetView& fleet);

  // Prompt tokens that this worker must compute; at least one.
  int64_t Uncached(const WorkerRecord& worker) const;
  // Time until this worker has computed the prompt, as the prefill worker.
  double PrefillUs(const WorkerRecord& worker) const;
  // Time from the end of prefill on another worker to the first token on `decode`.
  double HandOffUs(const WorkerRecord& decode) const;
  // Cost of the answer on `decode`. Very high if there is no room for the prompt.
  double DecodeUs(const WorkerRecord& decode) const;

  double RemoteUs(const WorkerRecord& decode, const WorkerRecord& prefill) const {
    return PrefillUs(prefill) + HandOffUs(decode) + DecodeUs(decode);
  }
  // `prefill` is the prefill worker that could help; null if there is none.
  double LocalUs(const WorkerRecord& decode, const WorkerRecord* prefill) const;
  // Returns true if `decode` should compute the prompt itself. REQUIRES: placement is automatic.
  bool ComputesLocally(const WorkerRecord& decode, const WorkerRecord& prefill) const;
  // Returns true if this decode worker holds most of the prompt and lacks at most
  // `local_continuation_tokens` tokens, which fit into its pool.
  bool MayStay(const WorkerRecord& decode) const;
  // Returns true if `a` has no more load and no more backlog than `b`.
  bool WaitsNoLonger(const WorkerRecord& a, const WorkerRecord& b) const;

  // Builds the plan, with its pull and its work.
  RoutePlan Plan(const WorkerRecord& decode, const WorkerRecord* prefill) const;

 private:
  // Cheapest way to get the prompt's KV on a worker.
  struct Way {
    std::optional<PrefixPull> pull;
    double compute_us;  // time for the tokens that are not pulled
  };
  // Data that is looked up once for every worker.
  struct Known {
    int64_t cached;  // cached prompt tokens that it will use, at most all but one
    mutable const WorkerThroughput* speeds = nullptr;  // once SpeedsOf was asked
    // Of a chunked prompt: the worker from which most can be pulled, and how many tokens.
    const WorkerRecord* chunk_source = nullptr;
    int64_t chunk_tokens = 0;
    mutable std::optional<Way> way = {};  // once WayOn was asked
  };

  const Known& Of(const WorkerRecord& worker) const { return known_[fleet_.PlaceOf(worker)]; }
  int64_t Cached(const WorkerRecord& worker) const { return Of(worker).cached; }
  const WorkerThroughput& SpeedsOf(const WorkerRecord& worker) const;
  // Time until the worker has computed the prompts that it has now. This router knows its own;
  // of those of others, it knows what was left at the last heartbeat.
  double BacklogUs(const WorkerRecord& worker) const;
  // The same, with what other routers may be sending there at this moment.
  double WaitUs(const WorkerRecord& worker) const;
  // The others' share of the running requests, as the top of this file defines it.
  double OthersShare() const;
  bool HasRoom(const WorkerRecord& worker) const;
  bool Continues(const WorkerRecord& decode, const WorkerRecord& prefill) const;
  const Way& WayOn(const WorkerRecord& worker) const;
  // Weighted delay of the answers that the worker decodes now, if it computes the prompt.
  double DelayOfAnswersUs(const WorkerRecord& worker) const;
  Way FindWay(const WorkerRecord& worker) const;
  double CostOf(const Way& way) const;
  double SharedCostOf(const WorkerRecord& worker, const Way& way) const;
  void FindHeld();
  const WorkerRecord* SourceFor(const WorkerRecord& worker) const;
  // Cached tokens that the worker will use after a pull from this source.
  int64_t CachedAfterPull(const WorkerRecord& worker, const WorkerRecord& source) const;
  double PullUs(const WorkerRecord& worker, int64_t tokens) const;
  int64_t KvBytes(const WorkerRecord& worker, int64_t tokens) const;

  const RoutingOptions& options_;
  const RoutingInput& input_;
  const FleetView& fleet_;
  absl::InlinedVector<Known, 64> known_;  // in the order of the fleet's candidates
  // The two workers of one kind with most of the prompt. Two, because no worker pulls from itself.
  struct Holders {
    const WorkerRecord* most = nullptr;
    const WorkerRecord* second = nullptr;
  };
  bool IsBetterSource(const WorkerRecord& a, const WorkerRecord& b) const;
  void Offer(const WorkerRecord& worker);
  void FindChunkSources();
  absl::InlinedVector<Holders, 2> holders_;     // only for pulls
  mutable std::optional<double> others_share_;  // once OthersShare was asked
  int64_t held_ = 0;     // most tokens of the prompt that a computing worker has cached
  int64_t waiting_ = 0;  // prompts waiting for the same held prefix, on the holder with the fewest
};

}  // namespace baton
