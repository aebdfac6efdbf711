#include "router/grpc/status_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_format.h"
#include "rpc/worker_role_name.h"

namespace baton {
namespace {

using nlohmann::json;

std::string StateText(const v1::WorkerStatus& worker) {
  if (worker.silent()) return "silent";
  if (worker.unreachable()) return "unreachable";
  return worker.draining() ? "draining" : "usable";
}

json PoolToJson(const v1::PoolStatus& pool) {
  return {{"total", pool.total_blocks()},
          {"free", pool.free_blocks()},
          {"cached", pool.cached_blocks()},
          {"owned", pool.owned_blocks()},
          {"in_flight", pool.in_flight_blocks()},
          {"step", pool.step_blocks()},
          {"evictable", pool.evictable_blocks()},
          {"evicted", pool.evicted_blocks()},
          {"bytes_per_block", pool.bytes_per_block()}};
}

json WorkerToJson(const v1::WorkerStatus& worker, const std::string& state,
                  const v1::IndexedWorkerStatus* indexed) {
  const v1::PoolStatus& pool = worker.pool();
  const v1::ChunkCacheStatus& chunks = pool.chunk_cache();
  return {{"id", worker.worker_id()},
          {"address", worker.address()},
          {"role", WorkerRoleName(worker.role())},
          {"state", state},
          {"waiting", worker.waiting()},
          {"running", worker.running()},
          {"waiting_for_kv", worker.waiting_for_kv()},
          {"transfers", worker.active_transfers()},
          {"preemptions", worker.preemptions()},
          {"prefill_tokens_per_second", worker.prefill_tokens_per_second()},
          {"decode_tokens_per_second", worker.decode_tokens_per_second()},
          {"resident_bytes", worker.resident_bytes()},
          {"error", worker.conservation_error()},
          {"pool", PoolToJson(pool)},
          {"hits",
           {{"lookups", pool.lookups()},
            {"hits", pool.hits()},
            {"lookup_tokens", pool.lookup_tokens()},
            {"hit_tokens", pool.hit_tokens()}}},
          {"tree_nodes", pool.radix_nodes()},
          {"chunks", {{"entries", chunks.entries()}, {"sleeping", chunks.sleeping_entries()}}},
          {"index_units", indexed == nullptr ? 0 : indexed->units()},
          {"followed", indexed != nullptr && indexed->followed()}};
}

json WorkersToJson(const v1::GetStatusResponse& status) {
  std::map<std::string_view, const v1::IndexedWorkerStatus*> indexed;
  for (const v1::IndexedWorkerStatus& worker : status.index().workers()) {
    indexed[worker.worker_id()] = &worker;
  }
  json out = json::array();
  const auto add = [&](const v1::WorkerStatus& worker, const std::string& state) {
    if (static_cast<int>(out.size()) >= kMostShownWorkers) return;
    const auto found = indexed.find(worker.worker_id());
    out.push_back(WorkerToJson(worker, state, found == indexed.end() ? nullptr : found->second));
  };
  for (const v1::WorkerStatus& worker : status.workers()) add(worker, StateText(worker));
  for (const v1::WorkerStatus& worker : status.leaving_workers()) add(worker, "leaving");
  return out;
}

json RecentToJson(const RecentRequest& request, int64_t now_us) {
  const int64_t decode_us = request.first_token_us == 0
                                ? 0
                                : std::max<int64_t>(0, request.total_us - request.first_token_us);
  return {{"id", request.id},
          {"number", request.ended_us},
          {"endpoint", std::string(kEndpointNames[static_cast<size_t>(request.endpoint)])},
          {"code", std::string(kStatusCodeNames[static_cast<size_t>(LabelOf(request.code))])},
          {"age_ms", std::max<int64_t>(0, now_us - request.ended_us) / 1000},
          {"prompt_tokens", request.prompt_tokens},
          {"cached_tokens", request.cached_tokens},
          {"output_tokens", request.output_tokens},
          {"prefill_worker", request.prefill_worker},
          {"decode_worker", request.decode_worker},
          {"first_token_us", request.first_token_us},
          {"total_us", request.total_us},
          {"parts",
           {{"tokenize_us", request.tokenize_us},
            {"route_us", request.route_us},
            {"pull_us", request.pull_us},
            {"queue_us", request.queue_us},
            {"prefill_us", request.prefill_us},
            {"transfer_us", request.transfer_us},
            {"admit_us", request.admit_us},
            {"decode_us", decode_us}}}};
}

// Each level has fewer prompts, so the depth is at most their number.
json TreeToJson(const std::vector<PrefixNode>& nodes) {
  json out = json::array();
  for (const PrefixNode& node : nodes) {
    out.push_back({{"hash", absl::StrFormat("%016x", node.hash)},
                   {"units", node.units},
                   {"prompts", node.prompts},
                   {"workers", node.workers},
                   {"children", TreeToJson(node.children)}});
  }
  return out;
}

// '<' occurs in strings only.
std::string WithoutTags(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      out.append("\\u003c");
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

std::string StatusPageToJson(const StatusPageInput& input) {
  const v1::GetStatusResponse& status = *input.status;
  int64_t gaps = 0;
  for (const v1::IndexedWorkerStatus& worker : status.index().workers()) gaps += worker.gaps();
  json recent = json::array();
  for (const RecentRequest& request : input.recent) {
    recent.push_back(RecentToJson(request, input.now_us));
  }
  const json out = {
      {"ready", status.ready()},
      {"model", input.model},
      {"policy", status.routing_policy()},
      {"requests",
       {{"active", status.active_requests()},
        {"waiting", input.waiting},
        {"total", status.requests_total()},
        {"failed", status.requests_failed()},
        {"rejected", status.requests_rejected()},
        {"cancelled", status.requests_cancelled()}}},
      {"workers", WorkersToJson(status)},
      {"workers_total", status.workers_size() + status.leaving_workers_size()},
      {"index",
       {{"units", status.index().units()}, {"bytes", status.index().bytes()}, {"gaps", gaps}}},
      {"recent", std::move(recent)},
      {"tree", TreeToJson(input.tree)}};
  return WithoutTags(out.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace baton
