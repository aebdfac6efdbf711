// `baton status`: workers, pools and queues, as the router knows them.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/client_commands.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "common/printable_text.h"

namespace baton {
namespace {

constexpr int64_t kStatusTimeoutMs = 5000;

struct StatusOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  bool json = false;
};

const char* RoleName(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_PREFILL:
      return "prefill";
    case v1::WORKER_ROLE_DECODE:
      return "decode";
    case v1::WORKER_ROLE_BOTH:
      return "both";
    default:
      return "?";
  }
}

// Of the tokens looked up in the prefix cache; "off" where there is none.
std::string HitPercent(const v1::PoolStatus& pool) {
  if (pool.has_prefix_cache() && !pool.prefix_cache()) return "off";
  if (pool.lookup_tokens() == 0) return "0.0";
  return absl::StrFormat("%.1f", 100.0 * static_cast<double>(pool.hit_tokens()) /
                                     static_cast<double>(pool.lookup_tokens()));
}

// Tokens that a sequence, prompt and answer, can have there.
int64_t Room(const v1::WorkerStatus& worker) {
  const int64_t pool = int64_t{worker.pool().limit_blocks()} * worker.pool().block_size();
  return worker.context_length() > 0 ? std::min<int64_t>(pool, worker.context_length()) : pool;
}

// What the router knows of the workers' prefix caches.
void PrintIndex(const v1::IndexStatus& index) {
  std::cout << absl::StrFormat(
      "index: %d of %d units of 16 tokens, %d held by workers, %d predicted, %d refused, %d MiB\n",
      index.units(), index.max_units(), index.memberships(), index.predicted_units(),
      index.refused_units(), index.bytes() >> 20);
  std::cout << absl::StrFormat("%-28s %8s %8s %10s %6s %9s\n", "worker", "units", "followed",
                               "batch", "gaps", "snapshots");
  for (const v1::IndexedWorkerStatus& worker : index.workers()) {
    std::cout << absl::StrFormat("%-28s %8d %8s %10d %6d %9d%s%s\n", Printable(worker.worker_id()),
                                 worker.units(), worker.followed() ? "yes" : "no",
                                 worker.sequence(), worker.gaps(), worker.snapshots(),
                                 worker.trouble().empty() ? "" : "  ", Printable(worker.trouble()));
  }
}

void PrintTable(const v1::GetStatusResponse& status) {
  std::cout << absl::StrFormat(
      "router: %s, %d active, %d requests, %d failed, %d rejected, %d cancelled, "
      "routing %s\n",
      status.ready() ? "ready" : "not ready", status.active_requests(), status.requests_total(),
      status.requests_failed(), status.requests_rejected(), status.requests_cancelled(),
      Printable(status.routing_policy()));
  std::cout << absl::StrFormat("%-28s %-8s %-21s %5s %5s %5s %6s %6s %6s %6s %6s %6s %7s %9s\n",
                               "worker", "role", "address", "wait", "run", "kv", "free", "cached",
                               "owned", "step", "total", "room", "hit %", "RSS MiB");
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::PoolStatus& pool = worker.pool();
    std::cout << absl::StrFormat(
        "%-28s %-8s %-21s %5d %5d %5d %6d %6d %6d %6d %6d %6d %7s %9d%s%s%s\n",
        Printable(worker.worker_id()), RoleName(worker.role()), Printable(worker.address()),
        worker.waiting(), worker.running(), worker.waiting_for_kv(), pool.free_blocks(),
        pool.cached_blocks(), pool.owned_blocks(), pool.step_blocks(), pool.total_blocks(),
        Room(worker), HitPercent(pool), worker.resident_bytes() >> 20,
        worker.draining() ? "  draining" : "", worker.unreachable() ? "  unreachable" : "",
        worker.silent() ? "  silent" : "");
    if (!worker.conservation_error().empty()) {
      std::cout << "  " << Printable(worker.conservation_error()) << "\n";
    }
    if (pool.reserved_blocks() > pool.limit_blocks() || pool.retiring_blocks() > 0) {
      std::cout << absl::StrFormat("  pool: limit %d of %d reserved blocks, %d retiring\n",
                                   pool.limit_blocks(), pool.reserved_blocks(),
                                   pool.retiring_blocks());
    }
    for (int at = 1; at < pool.groups_size(); ++at) {
      const v1::KvGroupStatus& group = pool.groups(at);
      std::cout << absl::StrFormat(
          "  window %d: %d free, %d cached, %d owned, %d in flight, %d of steps, %d blocks, %d "
          "retiring\n",
          group.window(), group.free_blocks(), group.cached_blocks(), group.owned_blocks(),
          group.in_flight_blocks(), group.step_blocks(), group.total_blocks(),
          group.retiring_blocks());
    }
  }
  for (const v1::RefusedWorker& worker : status.refused_workers()) {
    std::cout << absl::StrFormat("refused: %s at %s, %d ms ago: %s\n",
                                 Printable(worker.worker_id()), Printable(worker.address()),
                                 worker.heard_ms(), Printable(worker.reason()));
  }
  PrintIndex(status.index());
}

// Every field under its proto name, numbers as numbers (protobuf's own JSON writes 64-bit ones as
// strings).
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

nlohmann::ordered_json FieldToJson(const google::protobuf::Message& message,
                                   const google::protobuf::FieldDescriptor* field, int index) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& r = *message.GetReflection();
  const bool repeated = index >= 0;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return repeated ? r.GetRepeatedInt32(message, field, index) : r.GetInt32(message, field);
    case Field::CPPTYPE_INT64:
      return repeated ? r.GetRepeatedInt64(message, field, index) : r.GetInt64(message, field);
    case Field::CPPTYPE_UINT32:
      return repeated ? r.GetRepeatedUInt32(message, field, index) : r.GetUInt32(message, field);
    case Field::CPPTYPE_UINT64:
      return repeated ? r.GetRepeatedUInt64(message, field, index) : r.GetUInt64(message, field);
    case Field::CPPTYPE_DOUBLE:
      return repeated ? r.GetRepeatedDouble(message, field, index) : r.GetDouble(message, field);
    case Field::CPPTYPE_FLOAT:
      return repeated ? r.GetRepeatedFloat(message, field, index) : r.GetFloat(message, field);
    case Field::CPPTYPE_BOOL:
      return repeated ? r.GetRepeatedBool(message, field, index) : r.GetBool(message, field);
    case Field::CPPTYPE_ENUM:
      return (repeated ? r.GetRepeatedEnum(message, field, index) : r.GetEnum(message, field))
          ->name();
    case Field::CPPTYPE_STRING:
      return repeated ? r.GetRepeatedString(message, field, index) : r.GetString(message, field);
    case Field::CPPTYPE_MESSAGE:
      return ToJson(repeated ? r.GetRepeatedMessage(message, field, index)
                             : r.GetMessage(message, field));
  }
  return nullptr;
}

nlohmann::ordered_json ToJson(const google::protobuf::Message& message) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = type.field(i);
    nlohmann::ordered_json& value = json[field->name()];
    if (!field->is_repeated()) {
      value = FieldToJson(message, field, -1);
      continue;
    }
    value = nlohmann::ordered_json::array();
    for (int k = 0; k < message.GetReflection()->FieldSize(message, field); ++k) {
      value.push_back(FieldToJson(message, field, k));
    }
  }
  return json;
}

int Status(const StatusOptions& options) {
  RouterClient client(options.client);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus(kStatusTimeoutMs);
  if (!status.ok()) return ReportError(status.status());
  if (!options.json) {
    PrintTable(*status);
    return 0;
  }
  std::cout << ToJson(*status).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            << std::endl;
  return 0;
}

}  // namespace

void AddStatusCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand("status", "Show workers, pools and queues");
  auto options = std::make_shared<StatusOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  command.AddFlag("--json", &options->json, "Print one JSON object");
  command.OnRun([options] { return Status(*options); });
}

void AddClientCommands(CommandLine& line, CommandLine& inspect) {
  AddGenerateCommand(line);
  AddChatCommand(line);
  AddStatusCommand(line);
  AddUpCommand(line);
  AddInspectWorkerCommand(inspect);
  AddResizeCommand(line);
  AddClearCacheCommand(line);
}

}  // namespace baton
