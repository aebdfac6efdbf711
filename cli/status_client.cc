// `baton status`: shows workers, pools and queues from the router's view.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/client_commands.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "cli/status_table_client.h"
#include "cli/terminal.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/termination.h"
#include "rpc/grpc_log.h"

namespace baton {
namespace {

constexpr int64_t kStatusTimeoutMs = 5000;
constexpr int64_t kWatchTimeoutMs = 2000;  // longest delay of Ctrl-C

struct StatusOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  ConnectionFlags connection;
  bool json = false;
  bool index = false;
  bool tenants = false;
  double watch_s = 0;  // 0: prints once
};

// Converts every field under its proto name, with numbers as numbers. Protobuf's own JSON writes
// 64-bit numbers as strings.
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

std::string JsonLine(const v1::GetStatusResponse& status) {
  return ToJson(status).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Table(const v1::GetStatusResponse& status, const StatusOptions& options) {
  const std::string tenants = options.tenants ? TenantRows(status) : "";
  return StatusTable(status, options.index) + tenants;
}

int Status(const StatusOptions& options) {
  RouterClient client(options.client);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus(kStatusTimeoutMs);
  if (!status.ok()) return ReportError(status.status());
  std::cout << (options.json ? JsonLine(*status) : Table(*status, options)) << std::flush;
  return kExitSuccess;
}

// Redraws without flicker: replaces each line of the terminal, then erases the rest.
std::string Redrawn(const std::string& text) {
  return absl::StrCat("\033[H", absl::StrReplaceAll(text, {{"\n", "\033[K\n"}}), "\033[J");
}

// Repeats until a signal comes. Continues while the router does not answer, because it may come
// back.
int Watch(const StatusOptions& options, Termination& termination) {
  RouterClient client(options.client);
  const bool redraws = !options.json && TakesEscapes(STDOUT_FILENO);
  if (redraws) std::cout << "\033[2J";
  const auto pause_ms = static_cast<int>(options.watch_s * 1000);
  do {
    const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus(kWatchTimeoutMs);
    std::string text;
    if (!status.ok() && !redraws) {
      ReportError(status.status());
    } else if (options.json) {
      text = JsonLine(*status);
    } else {
      text = absl::StrCat(absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone()), "  ",
                          status.ok() ? Table(*status, options)
                                      : absl::StrCat(Printable(status.status().ToString()), "\n"));
    }
    std::cout << (redraws ? Redrawn(text) : text) << std::flush;
    if (!std::cout.good()) return kExitFailed;
  } while (termination.Wait(pause_ms) < 0);
  return kExitSuccess;
}

}  // namespace

void AddStatusCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand("status", "Show workers, pools and queues");
  auto options = std::make_shared<StatusOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  AddConnectionFlags(command, &options->connection);
  command.AddFlag("--json", &options->json, "Print one JSON object");
  command.AddFlag("--index", &options->index,
                  "Also show the router's index of the workers' prefix caches");
  command.AddFlag("--tenants", &options->tenants,
                  "Also show the requests, tokens and limits of this router's tenants");
  command
      .Add("--watch", &options->watch_s,
           "Repeat until Ctrl-C, after this many seconds each time. Without a number, 2")
      .Range(0.1, 3600.0)
      .OptionalValue("2");
  command.AddHelpText(kStatusColumnsHelp);
  command.OnRun([options] {
    // Before OpenConnection, which may start threads of gRPC.
    std::optional<Termination> termination;
    if (options->watch_s > 0) termination.emplace();
    const absl::StatusOr<ClientConnection> connection = OpenConnection(options->connection);
    if (!connection.ok()) return ReportError(connection.status());
    options->client.connection = *connection;
    return termination ? Watch(*options, *termination) : Status(*options);
  });
}

void AddClientCommands(CommandLine& line, CommandLine& inspect) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) SilenceGrpcLog();
  AddGenerateCommand(line);
  AddChatCommand(line);
  AddStatusCommand(line);
  AddUpCommand(line);
  AddInspectWorkerCommand(inspect);
  AddResizeCommand(line);
  AddSetRoleCommand(line);
  AddClearCacheCommand(line);
  AddChunksCommand(line);
  AddBenchCommand(line);
}

}  // namespace baton
