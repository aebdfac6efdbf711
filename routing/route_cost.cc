#include "routing/route_cost.h"

#include <algorithm>
#include <tuple>

namespace baton {
namespace {

// More than anything else costs: ten years.
constexpr double kNoRoomUs = 3e14;

// A model of 135 million parameters in f16, for workers that do not tell.
constexpr int64_t kKvBytesPerToken = 23'040;

}  // namespace

RouteCost::RouteCost(const RoutingOptions& options, const RoutingInput& input,
                     const FleetView& fleet)
    : options_(options), input_(input), fleet_(fleet) {
  const int32_t most = std::max(0, input.prompt_tokens - 1);
  known_.reserve(fleet.workers.size());
  for (const WorkerRecord& worker : fleet.workers) {
    const auto found = input.cached_tokens.find(worker.number);
    const int32_t cached = found == input.cached_tokens.end() ? 0 : found->second;
    known_.push_back({std::clamp(cached, 0, most), &fleet.speeds->Of(worker.number)});
  }
  if (!options.suggest_pulls) return;
  for (const WorkerRecord& worker : fleet.workers) {
    if (worker.Usable() && Cached(worker) > 0) holders_.push_back(&worker);
  }
  std::sort(holders_.begin(), holders_.end(), [this](const auto* a, const auto* b) {
    return std::tuple(-Cached(*a), a->Load(), a->number) <
           std::tuple(-Cached(*b), b->Load(), b->number);
  });
}

int64_t RouteCost::Uncached(const WorkerRecord& worker) const {
  return std::max<int64_t>(1, input_.prompt_tokens - Cached(worker));
}

bool RouteCost::HasRoom(const WorkerRecord& worker) const {
  return int64_t{worker.report.available_blocks} * worker.report.block_size >= Uncached(worker);
}

double RouteCost::PrefillUs(const WorkerRecord& worker) const {
  double us = static_cast<double>(worker.BacklogUs(fleet_.now_us)) +
              options_.compute_weight * ComputeUs(worker);
  // On a worker that only prefills, what other routers sent there waits to be computed as well.
  if (!worker.CanDecode()) us += worker.others * fleet_.speeds->prefill_us();
  if (!HasRoom(worker)) us += kNoRoomUs;
  return us;
}

double RouteCost::HandOffUs(const WorkerRecord& decode) const {
  const WorkerSpeeds& speeds = *Of(decode).speeds;
  return speeds.TransferUs(KvBytes(decode, Uncached(decode))) + speeds.HandOffUs();
}

double RouteCost::DecodeUs(const WorkerRecord& decode) const {
  const double step_us = Of(decode).speeds->StepUs(decode.Load() + 1);
  const double us = options_.decode_weight * fleet_.speeds->completion_tokens() * step_us;
  return HasRoom(decode) ? us : us + kNoRoomUs;
}

double RouteCost::LocalUs(const WorkerRecord& decode, const WorkerRecord* prefill) const {
  double us = static_cast<double>(decode.BacklogUs(fleet_.now_us)) + DecodeUs(decode);
  const double compute_us = options_.compute_weight * ComputeUs(decode);
  us += compute_us;
  const bool charged = prefill != nullptr && !decode.CanPrefill() && !Continues(decode, *prefill);
  return charged ? us + options_.local_prefill_penalty * compute_us : us;
}

bool RouteCost::ComputesLocally(const WorkerRecord& decode, const WorkerRecord& prefill) const {
  if (Uncached(decode) <= options_.local_prefill_tokens) return true;
  // A next turn stays where the turns before are, unless those who wait there cost more than what
  // the prefill worker would have to compute again.
  const double waits_us = static_cast<double>(decode.BacklogUs(fleet_.now_us));
  if (Continues(decode, prefill) && waits_us <= PrefillUs(prefill)) return true;
  return LocalUs(decode, &prefill) <= RemoteUs(decode, prefill);
}

bool RouteCost::Continues(const WorkerRecord& decode, const WorkerRecord& prefill) const {
  const int64_t here = Uncached(decode);
  const int64_t there = Uncached(prefill);
  if (here > options_.local_continuation_tokens) return false;
  // Equal shares are a draw, which counts when most of the prompt is here.
  return here < there || (here == there && 2 * here <= input_.prompt_tokens);
}

double RouteCost::ComputeUs(const WorkerRecord& worker) const {
  const WorkerSpeeds& speeds = *Of(worker).speeds;
  if (const auto pull = Pull(worker)) {
    return PullUs(worker, pull->tokens - Cached(worker)) +
           speeds.PrefillUs(pull->tokens, input_.prompt_tokens);
  }
  return speeds.PrefillUs(input_.prompt_tokens - Uncached(worker), input_.prompt_tokens);
}

std::optional<PrefixPull> RouteCost::Pull(const WorkerRecord& worker) const {
  const auto is_source = [&worker](const WorkerRecord* holder) {
    return holder->number != worker.number &&
           holder->report.fingerprint == worker.report.fingerprint;
  };
  const auto holder = std::find_if(holders_.begin(), holders_.end(), is_source);
  if (holder == holders_.end()) return std::nullopt;
  const int64_t here = Cached(worker);
  const int64_t there = Cached(**holder);
  if (there <= here) return std::nullopt;
  const double compute_us = Of(worker).speeds->PrefillUs(here, there);
  if (PullUs(worker, there - here) >= compute_us) return std::nullopt;
  return PrefixPull{.from = (*holder)->number, .tokens = static_cast<int32_t>(there)};
}

double RouteCost::PullUs(const WorkerRecord& worker, int64_t tokens) const {
  const WorkerSpeeds& speeds = *Of(worker).speeds;
  return speeds.TransferUs(KvBytes(worker, tokens)) + speeds.HandOffUs();
}

int64_t RouteCost::KvBytes(const WorkerRecord& worker, int64_t tokens) const {
  const int64_t told = worker.report.kv_bytes_per_token;
  return tokens * (told > 0 ? told : kKvBytesPerToken);
}

RoutePlan RouteCost::Plan(const WorkerRecord& decode, const WorkerRecord* prefill) const {
  const WorkerRecord& prefiller = prefill != nullptr ? *prefill : decode;
  RoutePlan plan{.decode = decode.number, .prefill = std::nullopt};
  if (prefill != nullptr) plan.prefill = prefill->number;
  plan.pull = Pull(prefiller);
  plan.work = {.tokens = Uncached(prefiller), .us = static_cast<int64_t>(ComputeUs(prefiller))};
  return plan;
}

}  // namespace baton
