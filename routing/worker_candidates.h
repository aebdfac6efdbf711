// Chooses the workers that a routing decision looks at, if the fleet is too large to look at all.
//
// A decision looks at these workers:
//  - those that have most of the prompt cached. The caller adds them, from the fleet's index.
//  - those that would begin a prompt first, by an order that is kept up to date (Draw).
//  - some random ones (Draw). They bring in workers that the order misplaces, for example because a
//    worker has not been measured for a while. "The Power of Two Choices" shows how few of them are
//    needed.
//
// The order is by the estimated cost of a mean request on an empty cache: the time at which the
// worker has computed its prompts, and the request's own cost there. So for a prompt that no worker
// has cached, the least cost in the fleet is among the first of the order, as far as the order is
// up to date. Full workers come last. Workers without a backlog are ordered by the request's own
// cost alone, and so are all decode workers a second time: the prompt may be computed elsewhere.
// Each kind of worker (worker_match.h) has an order of its own for each role, so that every decode
// worker finds prefill workers that may hand over to it.
//
// A worker's place changes when Update names it. All places are renewed when the fleet's mean
// figures have changed by a tenth (kDrift), because workers without measurements take these. But
// that waits until Update has named a quarter of the fleet, so that it costs little in a large one.
//
// The result depends only on the calls and the seed.
//
// Pure. Thread safety: the host locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "routing/routing_policy.h"
#include "routing/throughput_model.h"
#include "routing/worker_registry.h"

namespace baton {

class WorkerCandidates {
 public:
  static constexpr double kDrift = 0.1;

  // `count`: the workers that Draw returns, half of them random; at least 2.
  WorkerCandidates(const RoutingOptions& options, int32_t count);

  // Takes over the changes of these workers. Those that `registry` lacks have left.
  void Update(std::span<const WorkerNumber> changed, const WorkerRegistry& registry,
              const ThroughputModel& speeds);
  // Returns different usable workers that `accepts` accepts, and `prefers` too. From a kind and
  // role of which none is preferred, it returns others. There are at least two of each kind and
  // role, as far as the first of its order are accepted. So there may be more than `count`.
  std::vector<WorkerNumber> Draw(const std::function<bool(WorkerNumber)>& accepts,
                                 const std::function<bool(WorkerNumber)>& prefers);

  // Forgets all workers. The next Update takes over all of the registry.
  void Clear();

  size_t size() const { return places_.size(); }  // usable workers

 private:
  // Least cost first. Equal costs in the order in which the policy takes equal workers.
  using Key = std::tuple<double, int64_t, WorkerNumber>;
  using Order = absl::btree_set<Key>;
  // Workers of one kind and role.
  struct Group {
    WorkerReport like;
    Order idle;     // without a backlog, by cost
    Order busy;     // by cost and the time at which the backlog ends
    Order decodes;  // all that decode, by cost
    std::vector<WorkerNumber> members;
  };
  struct Place {
    size_t group;
    size_t member;  // position in Group::members
    bool busy;
    Key key;         // in `idle` or `busy`
    Key decode_key;  // in `decodes`
  };
  // Means that all keys are computed with.
  struct Means {
    WorkerThroughput fleet;
    double completion_tokens = 0;
    double prefill_us = 0;
    double prompt_token_us = 0;
  };

  bool HasDrifted(const ThroughputModel& speeds) const;
  double CostUs(const WorkerRecord& worker, const ThroughputModel& speeds) const;
  size_t GroupOf(const WorkerReport& report);
  // Renews all places.
  void Renew(const WorkerRegistry& registry, const ThroughputModel& speeds);
  // Adds a worker to its group, without keys.
  Place& Join(const WorkerRecord& worker);
  void SetKeys(const WorkerRecord& worker, const ThroughputModel& speeds, Place& place) const;
  // REQUIRES: the worker is usable.
  void Put(const WorkerRecord& worker, const ThroughputModel& speeds);
  void Remove(WorkerNumber number);
  void InsertKeys(const Place& place);
  void EraseKeys(const Place& place);
  static void TakeFirst(const Group& group, size_t most,
                        const std::function<bool(WorkerNumber)>& accepts,
                        std::vector<WorkerNumber>& out);
  void DrawFrom(const Group& group, size_t first, size_t random,
                const std::function<bool(WorkerNumber)>& accepts, std::vector<WorkerNumber>& out);
  uint64_t NextRandom();

  const double compute_weight_;
  const double answer_delay_weight_;
  const double decode_weight_;
  const int32_t count_;
  uint64_t random_;
  std::vector<Group> groups_;
  absl::flat_hash_map<WorkerNumber, Place> places_;
  std::optional<Means> means_;
  size_t updated_ = 0;  // workers that Update named since all places were renewed
};

}  // namespace baton
