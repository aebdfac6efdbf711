#include "routing/worker_candidates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "routing/worker_match.h"

namespace baton {
namespace {

constexpr int64_t kTypicalPromptTokens = WorkerReport::kTypicalPromptTokens;
// Larger than any real cost: ten years.
constexpr double kFullUs = 3e14;
// How many workers of an order are looked at for one that is accepted.
constexpr size_t kLooksForOne = 4;
// All places may be renewed once for every so many'th part of the fleet that was updated. So a
// renewal costs little more than the updates before it.
constexpr size_t kUpdatesForAll = 4;

bool AreAlike(const WorkerReport& a, const WorkerReport& b) {
  return a.role == b.role && SameKind(a, b) && a.block_size == b.block_size &&
         a.pool_layout == b.pool_layout;
}

bool Differ(double a, double b) {
  return std::abs(a - b) > WorkerCandidates::kDrift * std::min(a, b);
}

}  // namespace

WorkerCandidates::WorkerCandidates(const RoutingOptions& options, int32_t count)
    : compute_weight_(options.compute_weight),
      answer_delay_weight_(options.answer_delay_weight),
      decode_weight_(options.decode_weight),
      count_(std::max(2, count)),
      random_(static_cast<uint64_t>(options.seed)) {}

// SplitMix64.
uint64_t WorkerCandidates::NextRandom() {
  uint64_t value = random_ += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

bool WorkerCandidates::HasDrifted(const ThroughputModel& speeds) const {
  const WorkerThroughput& now = speeds.fleet();
  const WorkerThroughput& then = means_->fleet;
  return Differ(speeds.completion_tokens(), means_->completion_tokens) ||
         Differ(speeds.prefill_us(), means_->prefill_us) || Differ(now.StepUs(1), then.StepUs(1)) ||
         Differ(now.PrefillUs(0, kTypicalPromptTokens), then.PrefillUs(0, kTypicalPromptTokens));
}

// Cost of a mean request, without the backlog.
double WorkerCandidates::CostUs(const WorkerRecord& worker, const ThroughputModel& speeds) const {
  const bool known = speeds.Knows(worker.number);
  const WorkerThroughput& own = known ? speeds.Of(worker.number) : means_->fleet;
  double us = 0;
  if (worker.CanPrefill()) {
    const double slower =
        own.PrefillUs(0, kTypicalPromptTokens) / means_->fleet.PrefillUs(0, kTypicalPromptTokens);
    const double delayed = worker.CanDecode() ? answer_delay_weight_ * worker.Answers() : 0;
    us += (compute_weight_ + delayed) * means_->prefill_us * slower;
  }
  if (worker.CanDecode()) {
    us += decode_weight_ * means_->completion_tokens * own.StepUs(worker.Load() + 1);
  } else if (!worker.report.prompt_tokens_left) {
    us += worker.others * means_->prefill_us;
  }
  return us;
}

void WorkerCandidates::Update(std::span<const WorkerNumber> changed, const WorkerRegistry& registry,
                              const ThroughputModel& speeds) {
  updated_ += changed.size();
  if (!means_ || (HasDrifted(speeds) && updated_ >= places_.size() / kUpdatesForAll)) {
    return Renew(registry, speeds);
  }
  for (const WorkerNumber number : changed) {
    const WorkerRecord* const worker = registry.Find(number);
    if (worker == nullptr || !worker->Usable()) {
      Remove(number);
    } else {
      Put(*worker, speeds);
    }
  }
}

void WorkerCandidates::Renew(const WorkerRegistry& registry, const ThroughputModel& speeds) {
  means_ = {.fleet = speeds.fleet(),
            .completion_tokens = speeds.completion_tokens(),
            .prefill_us = speeds.prefill_us(),
            .prompt_token_us = speeds.PromptTokensUs(1)};
  updated_ = 0;
  groups_.clear();
  places_.clear();
  places_.reserve(registry.workers().size());
  struct Keys {
    std::vector<Key> idle, busy, decodes;
  };
  std::vector<Keys> keys;  // of each group; sorted keys are cheaper to insert
  for (const WorkerRecord& worker : registry.workers()) {
    if (!worker.Usable()) continue;
    Place& place = Join(worker);
    SetKeys(worker, speeds, place);
    keys.resize(groups_.size());
    Keys& own = keys[place.group];
    (place.busy ? own.busy : own.idle).push_back(place.key);
    if (worker.CanDecode()) own.decodes.push_back(place.decode_key);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto order = [](std::vector<Key>& sorted) {
      std::sort(sorted.begin(), sorted.end());
      return Order(sorted.begin(), sorted.end());
    };
    groups_[i].idle = order(keys[i].idle);
    groups_[i].busy = order(keys[i].busy);
    groups_[i].decodes = order(keys[i].decodes);
  }
}

void WorkerCandidates::Clear() {
  means_.reset();
  updated_ = 0;
  groups_.clear();
  places_.clear();
}

size_t WorkerCandidates::GroupOf(const WorkerReport& report) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (AreAlike(groups_[i].like, report)) return i;
  }
  groups_.emplace_back().like = report;
  return groups_.size() - 1;
}

WorkerCandidates::Place& WorkerCandidates::Join(const WorkerRecord& worker) {
  Place& place = places_[worker.number];
  place.group = GroupOf(worker.report);
  std::vector<WorkerNumber>& members = groups_[place.group].members;
  place.member = members.size();
  members.push_back(worker.number);
  return place;
}

void WorkerCandidates::SetKeys(const WorkerRecord& worker, const ThroughputModel& speeds,
                               Place& place) const {
  double us = CostUs(worker, speeds);
  if (worker.report.IsFull()) us += kFullUs;
  place.decode_key = {us, worker.assigned, worker.number};
  place.busy = !worker.prompts.empty() || worker.others_tokens > 0;
  if (place.busy) {  // the time at which its backlog ends, as RouteCost expects it
    double end_us = static_cast<double>(worker.prefilling_since_us + worker.pending.us);
    if (worker.others_tokens > 0) {
      const double heard_us = static_cast<double>(worker.others_tokens) * means_->prompt_token_us +
                              static_cast<double>(worker.last_heard_us + worker.HeardAndSentUs());
      end_us = worker.prompts.empty() ? heard_us : std::max(end_us, heard_us);
    }
    us += end_us;
  }
  place.key = {us, worker.assigned, worker.number};
}

void WorkerCandidates::Put(const WorkerRecord& worker, const ThroughputModel& speeds) {
  auto known = places_.find(worker.number);
  if (known != places_.end() && !AreAlike(groups_[known->second.group].like, worker.report)) {
    Remove(worker.number);  // its role has changed
    known = places_.end();
  }
  if (known != places_.end()) EraseKeys(known->second);
  Place& place = known != places_.end() ? known->second : Join(worker);
  SetKeys(worker, speeds, place);
  InsertKeys(place);
}

void WorkerCandidates::InsertKeys(const Place& place) {
  Group& group = groups_[place.group];
  (place.busy ? group.busy : group.idle).insert(place.key);
  if (group.like.role != WorkerRole::kPrefill) group.decodes.insert(place.decode_key);
}

void WorkerCandidates::EraseKeys(const Place& place) {
  Group& group = groups_[place.group];
  (place.busy ? group.busy : group.idle).erase(place.key);
  group.decodes.erase(place.decode_key);
}

void WorkerCandidates::Remove(WorkerNumber number) {
  const auto it = places_.find(number);
  if (it == places_.end()) return;
  const Place place = it->second;
  EraseKeys(place);
  places_.erase(it);
  std::vector<WorkerNumber>& members = groups_[place.group].members;
  if (members[place.member] != members.back()) {
    members[place.member] = members.back();
    places_.at(members.back()).member = place.member;
  }
  members.pop_back();
}

// A worker whose backlog ends soon may have a lower cost than the first idle one.
void WorkerCandidates::TakeFirst(const Group& group, size_t most,
                                 const std::function<bool(WorkerNumber)>& accepts,
                                 std::vector<WorkerNumber>& out) {
  const auto take = [&](const Order& order, size_t count) {
    const size_t before = out.size();
    size_t looks = kLooksForOne * count;
    for (auto it = order.begin(); it != order.end() && looks > 0; ++it, --looks) {
      if (out.size() - before == count) break;
      const WorkerNumber number = std::get<WorkerNumber>(*it);
      if (accepts(number)) out.push_back(number);
    }
    return out.size() - before;
  };
  const bool decodes = group.like.role != WorkerRole::kPrefill;
  const size_t for_decoding = decodes ? most / 4 : 0;
  take(group.decodes, for_decoding);
  const size_t rest = most - for_decoding;
  const size_t idle = take(group.idle, rest - rest / 2);
  const size_t busy = take(group.busy, rest - idle);
  if (idle + busy < rest) take(group.idle, rest);  // again from the first on; Draw drops doubles
}

void WorkerCandidates::DrawFrom(const Group& group, size_t first, size_t random,
                                const std::function<bool(WorkerNumber)>& accepts,
                                std::vector<WorkerNumber>& out) {
  TakeFirst(group, first, accepts, out);
  for (size_t i = 0; i < random && !group.members.empty(); ++i) {
    const WorkerNumber number = group.members[NextRandom() % group.members.size()];
    if (accepts(number)) out.push_back(number);
  }
}

std::vector<WorkerNumber> WorkerCandidates::Draw(const std::function<bool(WorkerNumber)>& accepts,
                                                 const std::function<bool(WorkerNumber)>& prefers) {
  std::vector<WorkerNumber> drawn;
  size_t populated = 0;
  for (const Group& group : groups_) populated += group.members.empty() ? 0 : 1;
  if (populated == 0) return drawn;
  const size_t random = std::max<size_t>(1, static_cast<size_t>(count_) / 2 / populated);
  const size_t first = std::max<size_t>(2, static_cast<size_t>(count_) / populated - random);
  const auto both = [&](WorkerNumber number) { return accepts(number) && prefers(number); };
  for (const Group& group : groups_) {
    const size_t before = drawn.size();
    DrawFrom(group, first, random, both, drawn);
    if (drawn.size() == before) DrawFrom(group, first, random, accepts, drawn);
  }
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

}  // namespace baton
