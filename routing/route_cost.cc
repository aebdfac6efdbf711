#include "routing/route_cost.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "routing/worker_match.h"

namespace baton {
namespace {

// Larger than any real cost: ten years.
constexpr double kNoRoomUs = 3e14;

// Most routers per worker that count. With few workers for each router, its homes are often busy,
// and a higher price of the others would let its prompts wait at home.
constexpr double kMostCrowd = 0.5;

// Default for workers that do not report it: a model of 135 million parameters in f16.
constexpr int64_t kKvBytesPerToken = 23'040;

// Part of a cached prefix that the worker will use. Its minimum counts whole blocks.
int32_t UsedOf(const WorkerReport& report, int32_t tokens) {
  const int32_t block_size = std::max(1, report.block_size);
  const int64_t least_blocks = (int64_t{report.min_prefix_tokens} + block_size - 1) / block_size;
  return tokens / block_size < least_blocks ? 0 : tokens;
}

}  // namespace

RouteCost::RouteCost(const RoutingOptions& options, const RoutingInput& input,
                     const FleetView& fleet)
    : options_(options), input_(input), fleet_(fleet) {
  const int32_t most = std::max(0, input.prompt_tokens - 1);
  known_.reserve(fleet.size());
  for (size_t i = 0; i < fleet.size(); ++i) {
    const WorkerRecord& worker = fleet.At(i);
    const auto found = input.cached_tokens.find(worker.number);
    const int32_t cached = found == input.cached_tokens.end() ? 0 : found->second;
    known_.push_back({.cached = UsedOf(worker.report, std::clamp(cached, 0, most))});
  }
  FindHeld();
  if (!options.pull_prefixes) return;
  if (input.chunk_repair) {
    FindChunkSources();
    return;
  }
  for (size_t i = 0; i < fleet.size(); ++i) {
    const WorkerRecord& worker = fleet.At(i);
    if (worker.Usable() && known_[i].cached > 0) Offer(worker);
  }
}

void RouteCost::FindChunkSources() {
  if (input_.chunks == nullptr) return;
  std::vector<std::pair<int64_t, const WorkerRecord*>> sources;  // with their tokens of chunks
  for (size_t i = 0; i < fleet_.size(); ++i) {
    const WorkerRecord& worker = fleet_.At(i);
    if (!worker.Usable() || !MovesChunks(input_, worker)) continue;
    const int64_t tokens = input_.chunks->TokensOf(worker.number);
    if (tokens > 0) sources.emplace_back(tokens, &worker);
  }
  std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) {
    return std::tuple(-a.first, a.second->Load(), a.second->number) <
           std::tuple(-b.first, b.second->Load(), b.second->number);
  });
  if (sources.size() > kChunkSources) sources.resize(kChunkSources);
  for (size_t i = 0; i < known_.size(); ++i) {
    const WorkerRecord& worker = fleet_.At(i);
    if (!MovesChunks(input_, worker)) continue;
    for (const auto& [held, source] : sources) {
      if (!MayHandOver(source->report, worker.report)) continue;
      const int64_t tokens = input_.chunks->TokensToPull(source->number, worker.number);
      if (tokens <= known_[i].chunk_tokens) continue;
      known_[i].chunk_source = source;
      known_[i].chunk_tokens = tokens;
    }
  }
}

void RouteCost::FindHeld() {
  if (input_.held_prefix == 0) return;
  // If there are prefill workers, decode workers compute few prompts, so they are ignored.
  bool all = true;
  for (size_t i = 0; i < fleet_.size(); ++i) all = all && !fleet_.At(i).CanPrefill();
  for (size_t i = 0; i < fleet_.size(); ++i) {
    const WorkerRecord& worker = fleet_.At(i);
    const int64_t cached = known_[i].cached;
    if (!worker.Usable() || (!all && !worker.CanPrefill()) || cached == 0 || cached < held_) {
      continue;
    }
    const int64_t waiting =
        std::count_if(worker.prompts.begin(), worker.prompts.end(),
                      [&](const PrefillWork& work) { return work.prefix == input_.held_prefix; });
    waiting_ = cached > held_ ? waiting : std::min(waiting_, waiting);
    held_ = cached;
  }
}

bool RouteCost::IsBetterSource(const WorkerRecord& a, const WorkerRecord& b) const {
  return std::tuple(-Cached(a), a.Load(), a.number) < std::tuple(-Cached(b), b.Load(), b.number);
}

void RouteCost::Offer(const WorkerRecord& worker) {
  auto found = std::find_if(holders_.begin(), holders_.end(), [&](const Holders& one) {
    return SameKind(one.most->report, worker.report);
  });
  if (found == holders_.end()) {
    holders_.push_back({.most = &worker});
  } else if (IsBetterSource(worker, *found->most)) {
    found->second = found->most;
    found->most = &worker;
  } else if (found->second == nullptr || IsBetterSource(worker, *found->second)) {
    found->second = &worker;
  }
}

const WorkerThroughput& RouteCost::SpeedsOf(const WorkerRecord& worker) const {
  const Known& known = Of(worker);
  if (known.speeds == nullptr) known.speeds = &fleet_.speeds->Of(worker.number);
  return *known.speeds;
}

int64_t RouteCost::Uncached(const WorkerRecord& worker) const {
  return std::max<int64_t>(1, input_.prompt_tokens - Cached(worker));
}

double RouteCost::BacklogUs(const WorkerRecord& worker) const {
  const auto own_us = static_cast<double>(worker.BacklogUs(fleet_.now_us));
  if (worker.others_tokens == 0) return own_us;
  const auto age_us = static_cast<double>(fleet_.now_us - worker.last_heard_us);
  const double all_us = fleet_.speeds->PromptTokensUs(worker.others_tokens) +
                        static_cast<double>(worker.HeardAndSentUs()) - age_us;
  return std::max(own_us, all_us);
}

double RouteCost::WaitUs(const WorkerRecord& worker) const {
  const double us = BacklogUs(worker);
  const int32_t routers = worker.report.routers;
  if (routers <= 1 || worker.alike <= 1) return us;
  const int32_t homes = std::min(routers, worker.alike);
  if (worker.place % homes == worker.report.router_place % homes) return us;
  const double crowd = std::min(kMostCrowd, static_cast<double>(routers) / worker.alike);
  return us + options_.away_weight * crowd * OthersShare() * fleet_.speeds->prefill_us();
}

double RouteCost::OthersShare() const {
  if (others_share_) return *others_share_;
  double own = 0;
  double others = 0;
  double routers = 2;
  for (size_t i = 0; i < fleet_.size(); ++i) {
    const WorkerRecord& worker = fleet_.At(i);
    own += worker.active;
    others += worker.others;
    routers = std::max<double>(routers, worker.report.routers);
  }
  // With equal routers, each of the others has as much as this one.
  const double expected = (own + others) * (routers - 1) / routers;
  others_share_ = expected > 0 ? std::min(1.0, others / expected) : 0;
  return *others_share_;
}

bool RouteCost::HasRoom(const WorkerRecord& worker) const {
  return int64_t{worker.report.available_blocks} * worker.report.block_size >= Uncached(worker);
}

double RouteCost::PrefillUs(const WorkerRecord& worker) const {
  double us = WaitUs(worker) + SharedCostOf(worker, WayOn(worker));
  // On a worker that only prefills, requests of other routers also wait for prefill.
  if (!worker.CanDecode() && !worker.report.prompt_tokens_left) {
    us += worker.others * fleet_.speeds->prefill_us();
  }
  if (worker.CanDecode()) us += DelayOfAnswersUs(worker);
  if (!HasRoom(worker)) us += kNoRoomUs;
  return us;
}

double RouteCost::DelayOfAnswersUs(const WorkerRecord& worker) const {
  return options_.answer_delay_weight * worker.Answers() * WayOn(worker).compute_us;
}

double RouteCost::HandOffUs(const WorkerRecord& decode) const {
  const WorkerThroughput& speeds = SpeedsOf(decode);
  return speeds.TransferUs(KvBytes(decode, Uncached(decode))) + speeds.HandOffUs();
}

double RouteCost::DecodeUs(const WorkerRecord& decode) const {
  const double step_us = SpeedsOf(decode).StepUs(decode.Load() + 1);
  const double us = options_.decode_weight * fleet_.speeds->completion_tokens() * step_us;
  return HasRoom(decode) ? us : us + kNoRoomUs;
}

double RouteCost::LocalUs(const WorkerRecord& decode, const WorkerRecord* prefill) const {
  double us = WaitUs(decode) + DecodeUs(decode);
  const Way& way = WayOn(decode);
  us += SharedCostOf(decode, way) + DelayOfAnswersUs(decode);
  const bool charged = prefill != nullptr && !decode.CanPrefill() && !Continues(decode, *prefill);
  if (!charged) return us;
  return us + options_.local_prefill_penalty * options_.compute_weight * way.compute_us;
}

bool RouteCost::ComputesLocally(const WorkerRecord& decode, const WorkerRecord& prefill) const {
  if (Uncached(decode) <= options_.local_prefill_tokens) return true;
  // A next turn stays with the earlier turns, unless the backlog there costs more than computing
  // the missing tokens on the prefill worker.
  const double waits_us = WaitUs(decode);
  if (Continues(decode, prefill) && waits_us <= PrefillUs(prefill)) return true;
  return LocalUs(decode, &prefill) <= RemoteUs(decode, prefill);
}

bool RouteCost::Continues(const WorkerRecord& decode, const WorkerRecord& prefill) const {
  const int64_t here = Uncached(decode);
  const int64_t there = Uncached(prefill);
  if (here > options_.local_continuation_tokens) return false;
  // On equal shares, the turn continues here if most of the prompt is cached here.
  return here < there || (here == there && 2 * here <= input_.prompt_tokens);
}

bool RouteCost::MayStay(const WorkerRecord& decode) const {
  const int64_t here = Uncached(decode);
  return here <= options_.local_continuation_tokens && 2 * here <= input_.prompt_tokens &&
         HasRoom(decode);
}

bool RouteCost::WaitsNoLonger(const WorkerRecord& a, const WorkerRecord& b) const {
  return a.Load() <= b.Load() && BacklogUs(a) <= BacklogUs(b);
}

const RouteCost::Way& RouteCost::WayOn(const WorkerRecord& worker) const {
  const Known& known = Of(worker);
  if (!known.way) known.way = FindWay(worker);
  return *known.way;
}

RouteCost::Way RouteCost::FindWay(const WorkerRecord& worker) const {
  const WorkerThroughput& speeds = SpeedsOf(worker);
  const int64_t here = Cached(worker);
  const Way alone{.pull = std::nullopt,
                  .compute_us = speeds.PrefillUs(input_.prompt_tokens - Uncached(worker),
                                                 input_.prompt_tokens)};
  const WorkerRecord* const source = SourceFor(worker);
  if (source == nullptr) return alone;
  const int64_t there = CachedAfterPull(worker, *source);
  if (there <= here) return alone;
  const int64_t tokens = input_.chunk_repair ? there - here : there;
  const Way pulling{.pull = PrefixPull{.from = source->number,
                                       .tokens = static_cast<int32_t>(tokens),
                                       .us = static_cast<int64_t>(PullUs(worker, there - here))},
                    .compute_us = speeds.PrefillUs(there, input_.prompt_tokens)};
  return CostOf(pulling) < CostOf(alone) ? pulling : alone;
}

double RouteCost::CostOf(const Way& way) const {
  const double us = options_.compute_weight * way.compute_us;
  return way.pull ? us + options_.pull_weight * static_cast<double>(way.pull->us) : us;
}

double RouteCost::SharedCostOf(const WorkerRecord& worker, const Way& way) const {
  const double us = CostOf(way);
  if (waiting_ == 0 || Cached(worker) >= held_) return us;
  // Tokens after the held prefix belong to this prompt only. Their cost is not shared.
  const double left_us = SpeedsOf(worker).PrefillUs(held_, input_.prompt_tokens);
  const double own_us = std::min(us, options_.compute_weight * left_us);
  return own_us + (us - own_us) / static_cast<double>(1 + waiting_);
}

int64_t RouteCost::CachedAfterPull(const WorkerRecord& worker, const WorkerRecord& source) const {
  if (!input_.chunk_repair) return UsedOf(worker.report, static_cast<int32_t>(Cached(source)));
  return std::min<int64_t>(Cached(worker) + Of(worker).chunk_tokens, input_.prompt_tokens - 1);
}

const WorkerRecord* RouteCost::SourceFor(const WorkerRecord& worker) const {
  if (input_.chunk_repair) return Of(worker).chunk_source;
  const WorkerRecord* best = nullptr;
  for (const Holders& holders : holders_) {
    if (!MayHandOver(holders.most->report, worker.report)) continue;
    const WorkerRecord* const source =
        holders.most->number == worker.number ? holders.second : holders.most;
    if (source != nullptr && (best == nullptr || IsBetterSource(*source, *best))) best = source;
  }
  return best;
}

double RouteCost::PullUs(const WorkerRecord& worker, int64_t tokens) const {
  const WorkerThroughput& speeds = SpeedsOf(worker);
  return speeds.TransferUs(KvBytes(worker, tokens)) + speeds.PullUs();
}

int64_t RouteCost::KvBytes(const WorkerRecord& worker, int64_t tokens) const {
  const int64_t told = worker.report.kv_bytes_per_token;
  return tokens * (told > 0 ? told : kKvBytesPerToken);
}

RoutePlan RouteCost::Plan(const WorkerRecord& decode, const WorkerRecord* prefill) const {
  const WorkerRecord& prefiller = prefill != nullptr ? *prefill : decode;
  RoutePlan plan{.decode = decode.number, .prefill = std::nullopt};
  if (prefill != nullptr) plan.prefill = prefill->number;
  const Way& way = WayOn(prefiller);
  plan.pull = way.pull;
  plan.work = {.tokens = Uncached(prefiller),
               .us = static_cast<int64_t>(way.compute_us),
               .prefix = input_.held_prefix};
  plan.first_token_us = static_cast<int64_t>(BacklogUs(prefiller)) + plan.work.us;
  if (plan.pull) plan.first_token_us += plan.pull->us;
  if (prefill != nullptr) plan.first_token_us += static_cast<int64_t>(HandOffUs(decode));
  for (size_t i = 0; i < fleet_.size(); ++i) {
    const WorkerRecord& worker = fleet_.At(i);
    if (!worker.Usable()) continue;
    const int64_t block_size = std::max(1, worker.report.block_size);
    plan.held_tokens = std::max(plan.held_tokens, Cached(worker) / block_size * block_size);
  }
  return plan;
}

}  // namespace baton
