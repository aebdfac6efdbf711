#include "routing/load_policies.h"

namespace baton {
namespace {

// The modulo bias of 64 random bits for a fleet's size is below 10^-12.
size_t Draw(std::mt19937_64& random, size_t count) { return random() % count; }

}  // namespace

const WorkerRecord& RoundRobinPolicy::Pick(WorkerPool pool, Candidates candidates,
                                           const RoutingInput&) {
  WorkerNumber& last = last_[static_cast<size_t>(pool)];
  const WorkerRecord* first = nullptr;
  const WorkerRecord* next = nullptr;
  for (const WorkerRecord* worker : candidates) {
    if (first == nullptr || worker->number < first->number) first = worker;
    if (worker->number > last && (next == nullptr || worker->number < next->number)) next = worker;
  }
  if (next == nullptr) next = first;
  last = next->number;
  return *next;
}

const WorkerRecord& RandomPolicy::Pick(WorkerPool, Candidates candidates, const RoutingInput&) {
  return *candidates[Draw(random_, candidates.size())];
}

const WorkerRecord& PowerOfTwoPolicy::Pick(WorkerPool, Candidates candidates, const RoutingInput&) {
  const size_t first = Draw(random_, candidates.size());
  if (candidates.size() == 1) return *candidates[first];
  size_t second = Draw(random_, candidates.size() - 1);
  if (second >= first) ++second;
  const bool take_second = LessLoaded(*candidates[second], *candidates[first]);
  return *candidates[take_second ? second : first];
}

}  // namespace baton
