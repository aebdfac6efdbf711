#include "cli/status_table_client.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/printable_text.h"
#include "rpc/worker_role_name.h"

namespace baton {
namespace {

using Row = std::vector<std::string>;

// Pads each column to the width of its widest cell. Aligns the first `texts` columns left, others
// right.
std::string Aligned(const Row& row, const std::vector<size_t>& widths, size_t texts) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string blanks(widths[i] - std::min(widths[i], row[i].size()), ' ');
    absl::StrAppend(&line, i == 0 ? "" : "  ", i < texts ? "" : blanks, row[i],
                    i < texts ? blanks : "");
  }
  while (line.ends_with(' ')) line.pop_back();
  return line + "\n";
}

std::vector<size_t> Widths(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

// Returns the share of looked-up tokens that the prefix cache had, or "off" without a prefix cache.
std::string HitPercent(const v1::PoolStatus& pool) {
  if (pool.has_prefix_cache() && !pool.prefix_cache()) return "off";
  if (pool.lookup_tokens() == 0) return "0.0";
  return absl::StrFormat("%.1f", 100.0 * static_cast<double>(pool.hit_tokens()) /
                                     static_cast<double>(pool.lookup_tokens()));
}

// Returns the longest sequence, prompt and answer, that the worker can hold, in tokens.
int64_t Room(const v1::WorkerStatus& worker) {
  const int64_t pool = int64_t{worker.pool().limit_blocks()} * worker.pool().block_size();
  return worker.context_length() > 0 ? std::min<int64_t>(pool, worker.context_length()) : pool;
}

bool TellsTimes(const v1::WorkerStatus& worker) { return worker.uptime_ms() > 0; }

std::string Rate(const v1::WorkerStatus& worker, float per_second) {
  if (!TellsTimes(worker)) return "-";
  return per_second < 10 && per_second > 0 ? absl::StrFormat("%.1f", per_second)
                                           : absl::StrFormat("%.0f", per_second);
}

std::string Uptime(const v1::WorkerStatus& worker) {
  if (!TellsTimes(worker)) return "-";
  const int64_t seconds = worker.uptime_ms() / 1000;
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrFormat("%ds", seconds);
  if (hours == 0) return absl::StrFormat("%dm%02ds", minutes, seconds % 60);
  if (hours < 24) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
}

// Returns whole MiB, or bytes below one MiB.
std::string KvBytes(int64_t bytes) {
  return bytes < 1 << 20 ? absl::StrCat(bytes, " bytes") : absl::StrCat(bytes >> 20, " MiB");
}

constexpr size_t kTextColumns = 4;

Row Titles() {
  return {"worker", "role", "state",    "address",  "wait",   "run",
          "kv",     "free", "cached",   "owned",    "step",   "total",
          "room",   "hit%", "prompt/s", "answer/s", "uptime", "RSS MiB"};
}

Row WorkerRow(const v1::WorkerStatus& worker) {
  const v1::PoolStatus& pool = worker.pool();
  return {Printable(worker.worker_id()),
          WorkerRoleName(worker.role()),
          WorkerState(worker),
          Printable(worker.address()),
          absl::StrCat(worker.waiting()),
          absl::StrCat(worker.running()),
          absl::StrCat(worker.waiting_for_kv()),
          absl::StrCat(pool.free_blocks()),
          absl::StrCat(pool.cached_blocks()),
          absl::StrCat(pool.owned_blocks()),
          absl::StrCat(pool.step_blocks()),
          absl::StrCat(pool.total_blocks()),
          absl::StrCat(Room(worker)),
          HitPercent(pool),
          Rate(worker, worker.prefill_tokens_per_second()),
          Rate(worker, worker.decode_tokens_per_second()),
          Uptime(worker),
          absl::StrCat(worker.resident_bytes() >> 20)};
}

// Returns the lines for data that do not fit into a worker's row.
std::string LinesBelow(const v1::WorkerStatus& worker) {
  const v1::PoolStatus& pool = worker.pool();
  std::string out;
  if (!worker.conservation_error().empty()) {
    absl::StrAppend(&out, "  ", Printable(worker.conservation_error()), "\n");
  }
  if (pool.reserved_blocks() > pool.limit_blocks() || pool.retiring_blocks() > 0) {
    absl::StrAppendFormat(&out, "  pool: limit %d of %d reserved blocks, %d retiring\n",
                          pool.limit_blocks(), pool.reserved_blocks(), pool.retiring_blocks());
  }
  if (worker.kv_bytes_through_host() > 0) {
    absl::StrAppendFormat(&out, "  transfers: %s of KV copied between GPU and host memory\n",
                          KvBytes(worker.kv_bytes_through_host()));
  }
  for (int at = 1; at < pool.groups_size(); ++at) {
    const v1::KvGroupStatus& group = pool.groups(at);
    absl::StrAppendFormat(
        &out,
        "  window %d: %d free, %d cached, %d owned, %d in flight, %d of steps, %d blocks, %d "
        "retiring\n",
        group.window(), group.free_blocks(), group.cached_blocks(), group.owned_blocks(),
        group.in_flight_blocks(), group.step_blocks(), group.total_blocks(),
        group.retiring_blocks());
  }
  if (const v1::ChunkCacheStatus& chunks = pool.chunk_cache(); chunks.lookups() > 0) {
    absl::StrAppendFormat(
        &out,
        "  prompt chunks: %d entries in %d of %d blocks, %d lookups, %d hits, %d misses, %d "
        "bypassed, %d evicted\n",
        chunks.entries(), chunks.used_blocks(), chunks.budget_blocks(), chunks.lookups(),
        chunks.hits(), chunks.misses(), chunks.bypasses(), chunks.evictions());
  }
  if (const v1::ChunkCacheStatus& chunks = pool.chunk_cache(); chunks.sleeping_limit_bytes() > 0) {
    constexpr double kMiB = 1 << 20;
    absl::StrAppendFormat(
        &out,
        "  sleeping chunks: %d in %.1f of %.1f MiB of host memory, %d slept, %d woken, %d damaged, "
        "%d dropped\n",
        chunks.sleeping_entries(), static_cast<double>(chunks.sleeping_bytes()) / kMiB,
        static_cast<double>(chunks.sleeping_limit_bytes()) / kMiB, chunks.sleeps(), chunks.wakes(),
        chunks.damaged(), chunks.sleepers_dropped());
  }
  return out;
}

std::string RoleLines(const v1::RolePlan& plan) {
  std::string out = absl::StrFormat("roles (%s): ", Printable(plan.mode()));
  const bool all_do_both = plan.known() && plan.prefill_workers() + plan.decode_workers() == 0;
  if (plan.known() && !all_do_both) {
    absl::StrAppendFormat(
        &out, "the plan wants %d prefill and %d decode workers, there are %d and %d: ",
        plan.wanted_prefill_workers(),
        plan.prefill_workers() + plan.decode_workers() - plan.wanted_prefill_workers(),
        plan.prefill_workers(), plan.decode_workers());
  }
  absl::StrAppend(
      &out, all_do_both ? "all usable workers have both roles" : Printable(plan.reason()), "\n");
  if (!plan.next().empty()) absl::StrAppend(&out, "  next: ", Printable(plan.next()), "\n");
  if (!plan.last_flip().empty()) {
    absl::StrAppendFormat(&out, "  last of %d: %s, %d s ago\n", plan.flips(),
                          Printable(plan.last_flip()), plan.last_flip_ms() / 1000);
  }
  if (!plan.trouble().empty()) absl::StrAppend(&out, "  ", Printable(plan.trouble()), "\n");
  return out;
}

std::string IndexTable(const v1::IndexStatus& index) {
  std::string out = absl::StrFormat(
      "index: %d of %d units of 16 tokens, %d held by workers, %d predicted, %d refused, %d MiB\n",
      index.units(), index.max_units(), index.memberships(), index.predicted_units(),
      index.refused_units(), index.bytes() >> 20);
  std::vector<Row> rows = {{"worker", "units", "followed", "batch", "gaps", "snapshots"}};
  for (const v1::IndexedWorkerStatus& worker : index.workers()) {
    rows.push_back({Printable(worker.worker_id()), absl::StrCat(worker.units()),
                    worker.followed() ? "yes" : "no", absl::StrCat(worker.sequence()),
                    absl::StrCat(worker.gaps()), absl::StrCat(worker.snapshots())});
  }
  const std::vector<size_t> widths = Widths(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppend(&out, Aligned(rows[i], widths, 1));
    const std::string trouble = i == 0 ? "" : index.workers(static_cast<int>(i) - 1).trouble();
    if (!trouble.empty()) absl::StrAppend(&out, "  ", Printable(trouble), "\n");
  }
  return out;
}

}  // namespace

const char kStatusColumnsHelp[] =
    "The first line counts the requests that the router has worked on. failed: the fleet's fault,\n"
    "or a deadline. rejected: the client's fault. Requests that a limit, a missing key or HTTP's\n"
    "checks refuse before that are only in the metric baton_requests_refused_total.\n"
    "\n"
    "Columns:\n"
    "  state         serving, or why the worker gets no new requests. draining: it is ending, or\n"
    "                  has just ended, and its figures are from its last heartbeat. silent: it\n"
    "                  answers no probes. unreachable: a call failed. damaged: its block\n"
    "                  accounting is wrong.\n"
    "  wait          sequences in the queue\n"
    "  run           sequences in the batch\n"
    "  kv            sequences that wait for KV from another worker\n"
    "  free          free blocks of the KV pool\n"
    "  cached        blocks that only the prefix cache holds\n"
    "  owned         blocks that sequences hold\n"
    "  step          blocks that only the running step holds\n"
    "  total         all blocks of the KV pool\n"
    "  room          longest sequence, prompt and answer, that the worker can hold, in tokens\n"
    "  hit%          share of looked-up prompt tokens that the prefix cache had; off: no cache\n"
    "  prompt/s      prompt tokens computed per second, mean of the last five seconds\n"
    "  answer/s      answer tokens generated per second, mean of the last five seconds\n"
    "  uptime        time since the worker started\n"
    "  RSS MiB       resident memory of the process\n"
    "\n"
    "Columns with --index, about what the router's index knows of each worker's cache:\n"
    "  units         units of 16 tokens that the worker holds\n"
    "  followed      yes: the index has every event that the worker has published. no: the\n"
    "                  reason follows\n"
    "  batch         last batch of events that the index has applied\n"
    "  gaps          how often batches were missing\n"
    "  snapshots     snapshots that the index has applied\n"
    "\n"
    "Columns with --tenants. Counts are of this router, since it started. - means no limit:\n"
    "  run, wait     requests that are answered now, and requests that wait for their turn\n"
    "  requests      requests so far\n"
    "  refused       of these: those that a limit refused\n"
    "  tokens        tokens of prompts and answers so far\n"
    "  weight        share of the fleet when tenants compete, relative to other weights\n"
    "  requests/min, tokens/min, concurrent, priority: limits of the tenant\n"
    "  KV share      share of each worker's KV pool in which its cached prefixes are safe\n"
    "\n"
    "The line `roles (off|advise|apply)` shows how many prefill and decode workers the router's\n"
    "role planner wants, and why. With advise it changes no role; `next` shows what it would do\n"
    "with apply. Workers with both roles are not planned.";

const char* WorkerState(const v1::WorkerStatus& worker) {
  if (worker.unreachable()) return "unreachable";
  if (worker.silent()) return "silent";
  if (!worker.conservation_error().empty()) return "damaged";
  return worker.draining() ? "draining" : "serving";
}

std::string StatusTable(const v1::GetStatusResponse& status, bool index) {
  std::string out = absl::StrFormat(
      "router: %s, %d active, %d requests, %d failed, %d rejected, %d cancelled, routing %s\n",
      status.ready() ? "ready" : "not ready", status.active_requests(), status.requests_total(),
      status.requests_failed(), status.requests_rejected(), status.requests_cancelled(),
      Printable(status.routing_policy()));
  std::vector<const v1::WorkerStatus*> workers;
  for (const v1::WorkerStatus& worker : status.workers()) workers.push_back(&worker);
  for (const v1::WorkerStatus& worker : status.leaving_workers()) workers.push_back(&worker);
  // A restarted worker keeps its row.
  std::stable_sort(workers.begin(), workers.end(),
                   [](const v1::WorkerStatus* a, const v1::WorkerStatus* b) {
                     return a->worker_id() < b->worker_id();
                   });
  std::vector<Row> rows = {Titles()};
  for (const v1::WorkerStatus* worker : workers) rows.push_back(WorkerRow(*worker));
  const std::vector<size_t> widths = Widths(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    absl::StrAppend(&out, Aligned(rows[i], widths, kTextColumns));
    if (i > 0) absl::StrAppend(&out, LinesBelow(*workers[i - 1]));
  }
  for (const v1::RefusedWorker& worker : status.refused_workers()) {
    absl::StrAppendFormat(&out, "refused: %s at %s, %d ms ago: %s\n", Printable(worker.worker_id()),
                          Printable(worker.address()), worker.heard_ms(),
                          Printable(worker.reason()));
  }
  if (status.has_role_plan()) absl::StrAppend(&out, RoleLines(status.role_plan()));
  if (index) absl::StrAppend(&out, IndexTable(status.index()));
  return out;
}

std::string TenantRows(const v1::GetStatusResponse& status) {
  if (status.tenants_size() == 0) {
    return "tenants: none. The router has no --tenants, or no tenant has sent a request\n";
  }
  const auto limit = [](int64_t value) { return value == 0 ? "-" : absl::StrCat(value); };
  std::vector<Row> rows = {{"tenant", "run", "wait", "requests", "refused", "tokens", "weight",
                            "requests/min", "tokens/min", "concurrent", "priority", "KV share"}};
  for (const v1::TenantStatus& tenant : status.tenants()) {
    rows.push_back({absl::StrCat("\"", Printable(tenant.tenant()), "\""),
                    absl::StrCat(tenant.running()), absl::StrCat(tenant.waiting()),
                    absl::StrCat(tenant.requests()), absl::StrCat(tenant.refused()),
                    absl::StrCat(tenant.tokens()), absl::StrFormat("%g", tenant.weight()),
                    limit(tenant.requests_per_minute()), limit(tenant.tokens_per_minute()),
                    limit(tenant.concurrent_requests()),
                    tenant.has_max_priority() ? absl::StrCat("<= ", tenant.max_priority()) : "-",
                    tenant.kv_share() == 0 ? "-" : absl::StrFormat("%g", tenant.kv_share())});
  }
  const std::vector<size_t> widths = Widths(rows);
  std::string out;
  for (const Row& row : rows) absl::StrAppend(&out, Aligned(row, widths, 1));
  return out;
}

}  // namespace baton
