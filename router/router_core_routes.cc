// Routing decisions of RouterCore.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error_details.h"
#include "common/status_macros.h"
#include "router/router_core.h"
#include "routing/prompt_takers.h"

namespace baton {
namespace {

// More different shapes of pools than this are not compared. Then the room of every worker is.
constexpr size_t kMostRoomShapes = 64;

}  // namespace

absl::StatusOr<Route> RouterCore::ChooseRoute(const RouteQuestion& question) {
  if (metrics_ == nullptr) return Choose(question);
  const int64_t begin_us = clock_->NowUs();
  absl::StatusOr<Route> route = Choose(question);
  metrics_->Observe(Metric::kRouteSeconds, clock_->NowUs() - begin_us);
  return route;
}

RoutingInput RouterCore::InputOf(const RouteQuestion& question, PromptLookup& lookup) {
  RoutingInput input;
  input.prompt_tokens = question.prompt_tokens;
  input.placement = question.placement;
  input.excluded = question.excluded;
  input.fingerprint = question.fingerprint;
  input.backend = question.backend;
  input.affinity_key = question.affinity_key;
  if (question.chunked != nullptr) {
    input.prompt_tokens -= static_cast<int32_t>(question.chunked->repeated_tokens());
    input.chunk_repair = question.chunked->prompt().options.repair;
    input.chunks = lookup.chunks();
  }
  PromptLookup::Cached cached = lookup.Of(predicted_, clock_->NowUs());
  input.cached_tokens = std::move(cached.tokens);
  input.held_prefix = cached.held_prefix;
  return input;
}

absl::Status RouterCore::CheckTakenLocked(const RoutingInput& input) const {
  absl::Status taken = CheckTaken(input, registry_.workers());
  if (!absl::IsFailedPrecondition(taken)) return taken;
  const int64_t left_us = first_registered_us_ + kRegistrationUs - clock_->NowUs();
  if (left_us <= 0) return taken;
  const int64_t left_ms = (left_us + 999) / 1000;
  absl::Status wait = absl::UnavailableError(
      absl::StrCat("try again in ", left_ms,
                   " ms: this router got its first worker just now, and workers that take the "
                   "prompt may follow. Reason now: ",
                   std::string(taken.message())));
  SetRetryAfterMs(wait, left_ms);
  return wait;
}

absl::StatusOr<Route> RouterCore::Choose(const RouteQuestion& question) {
  const std::optional<Drawn> drawn = DrawCandidates(question);
  absl::StatusOr<Route> route = ChooseAmong(question, drawn);
  if (!drawn || !absl::IsUnavailable(route.status())) return route;
  // The candidates may all be forbidden where some other worker is not.
  return ChooseAmong(question, std::nullopt);
}

absl::StatusOr<Route> RouterCore::ChooseAmong(const RouteQuestion& question,
                                              const std::optional<Drawn>& drawn) {
  LookupLimits limits;
  if (drawn) limits = {.most = HoldingCandidates(), .turn = drawn->turn, .also = drawn->workers};
  PromptLookup lookup(index_, question.prompt_hashes, question.chunked, drawn ? &limits : nullptr);
  std::lock_guard lock(mutex_);
  const std::string& served = registry_.fleet_model();
  if (!question.model.empty() && !served.empty() && question.model != served) {
    return absl::UnavailableError(absl::StrCat("the prompt was tokenised for model ",
                                               question.model, "; the fleet serves ", served,
                                               " now"));
  }
  RoutingInput input = InputOf(question, lookup);
  RETURN_IF_ERROR(CheckTakenLocked(input));
  RETURN_IF_ERROR(DemandRoom(question, input));
  std::vector<int32_t> places;
  if (drawn) places = PlacesOf(drawn->workers, input);
  const FleetView fleet{.workers = registry_.workers(),
                        .speeds = &speeds_,
                        .now_us = clock_->NowUs(),
                        .candidates = places,
                        .candidate_at = candidate_at_};
  ASSIGN_OR_RETURN(const RoutePlan plan, policy_->Choose(input, fleet));
  return Count(question, input, plan);
}

bool RouterCore::IsLarge() const {
  const int32_t candidates = options_.routing.candidates;
  return candidates > 0 && registry_.workers().size() > static_cast<size_t>(candidates) &&
         policy_->TakesCandidates();
}

size_t RouterCore::HoldingCandidates() const {
  const int32_t all = options_.routing.candidates;
  return static_cast<size_t>(std::max(1, all - all * kDrawnEighths / 8));
}

std::optional<RouterCore::Drawn> RouterCore::DrawCandidates(const RouteQuestion& question) {
  std::lock_guard lock(mutex_);
  if (!IsLarge()) return std::nullopt;
  candidates_.Update(registry_.TakeTouched(), registry_, speeds_);
  const auto accepts = [&](WorkerNumber number) { return !question.excluded.contains(number); };
  // The order knows only whether a typical prompt fits in.
  const auto has_room = [&](WorkerNumber number) {
    const WorkerReport& report = registry_.Find(number)->report;
    return int64_t{report.available_blocks} * report.block_size >= question.prompt_tokens;
  };
  return Drawn{.workers = candidates_.Draw(accepts, has_room), .turn = ++decisions_};
}

std::vector<int32_t> RouterCore::PlacesOf(std::span<const WorkerNumber> drawn,
                                          const RoutingInput& input) {
  std::vector<int32_t> places;
  places.reserve(drawn.size() + input.cached_tokens.size());
  const WorkerRecord* const first = registry_.workers().data();
  const auto add = [&](WorkerNumber number) {
    const WorkerRecord* const worker = registry_.Find(number);
    if (worker != nullptr) places.push_back(static_cast<int32_t>(worker - first));
  };
  for (const WorkerNumber number : drawn) add(number);
  for (const auto& [number, tokens] : input.cached_tokens) add(number);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  candidate_at_.resize(registry_.workers().size());
  for (size_t i = 0; i < places.size(); ++i) {
    candidate_at_[static_cast<size_t>(places[i])] = static_cast<int32_t>(i);
  }
  return places;
}

Route RouterCore::Count(const RouteQuestion& question, const RoutingInput& input,
                        const RoutePlan& plan) {
  Route route;
  route.plan = plan;
  const WorkerReport& decode = registry_.Find(route.plan.decode)->report;
  route.decode_id = decode.id;
  route.room = question.least_room > 0 ? question.least_room : input.room.RoomOn(decode);
  route.decode_fingerprint = decode.fingerprint;
  route.decode_backend = decode.backend;
  route.decode_address = decode.address;
  route.decode_epoch = decode.epoch;
  registry_.AddActive(route.plan.decode);
  route.decode_batch = registry_.Find(route.plan.decode)->Load();
  const bool waits = route.plan.prefill && question.queues_for_kv;
  if (!waits) registry_.AddPrefill(route.plan.prefiller(), route.plan.work);
  if (!question.asked_before) role_load_.prefill_us += route.plan.work.us;
  if (route.plan.prefill) {
    const WorkerReport& prefill = registry_.Find(*route.plan.prefill)->report;
    route.prefill_id = prefill.id;
    route.prefill_address = prefill.address;
    route.prefill_epoch = prefill.epoch;
    if (!waits) registry_.AddActive(*route.plan.prefill);
  }
  if (route.plan.pull) {
    const WorkerReport& source = registry_.Find(route.plan.pull->from)->report;
    route.pull_source_id = source.id;
    route.pull_source_address = source.address;
    route.pull_source_epoch = source.epoch;
    if (input.chunks != nullptr) {
      route.pulled_chunks =
          input.chunks->ChunksToPull(route.plan.pull->from, route.plan.prefiller());
    }
  }
  return route;
}

std::optional<int64_t> RouterCore::EqualRoom(const RoutingInput& input) const {
  const auto& shapes = registry_.room_shapes();
  if (shapes.size() > kMostRoomShapes) return std::nullopt;
  std::optional<int64_t> room;
  for (const auto& [shape, count] : shapes) {
    WorkerReport like;
    like.pool_tokens = shape.pool_tokens;
    like.context_length = shape.context_length;
    like.block_size = shape.block_size;
    like.paged = shape.paged;
    const int64_t own = input.room.RoomOn(like);
    if (room && *room != own) return std::nullopt;
    room = own;
  }
  return room;
}

int64_t RouterCore::MostRoom(const RoutingInput& input) const {
  int64_t most = 0;
  for (const WorkerRecord& worker : registry_.workers()) {
    if (MayDecode(input, worker)) most = std::max(most, input.room.RoomOn(worker.report));
  }
  return most;
}

int64_t RouterCore::LeastRoom(const RouteQuestion& question, const RoutingInput& input,
                              int64_t most) const {
  if (question.least_room > 0) return question.least_room;
  if (!question.open_ended) return most;
  const int64_t least =
      std::min(most, int64_t{question.prompt_tokens} + RouteQuestion::kLeastAnswerTokens);
  int64_t most_now = 0;
  for (const WorkerRecord& worker : registry_.workers()) {
    if (MayDecode(input, worker) && !worker.AtLimit()) {
      most_now = std::max(most_now, input.room.RoomOn(worker.report));
    }
  }
  return std::max(least, most_now);
}

absl::Status RouterCore::DemandRoom(const RouteQuestion& question, RoutingInput& input) const {
  input.room.sequence_tokens = question.sequence_tokens;
  if (question.chunked != nullptr) input.room.shape = &question.chunked->shape();
  // Most often no worker limits the sequence. Then no worker need be looked at.
  const std::optional<int64_t> equal = EqualRoom(input);
  if (equal && *equal >= question.least_room) return absl::OkStatus();
  const int64_t most = MostRoom(input);
  if (most > 0 && most < question.least_room) {
    return absl::UnavailableError(
        absl::StrCat("no decode worker is left that can hold ", question.least_room,
                     " tokens of the request; at most ", most, " fit into one"));
  }
  input.room.least = LeastRoom(question, input, most);
  return absl::OkStatus();
}

}  // namespace baton
