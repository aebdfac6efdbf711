// `baton keys`: makes API keys for the clients of a router.

#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/entropy.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "security/api_key_file.h"

namespace baton {
namespace {

constexpr int64_t kSecondsPerDay = 86'400;

struct KeysOptions {
  std::string tenant;
  std::string id;
  std::string role = "client";
  int32_t days = 0;
  std::string file;
};

absl::StatusOr<std::string> NewKey(const KeysOptions& options) {
  ASSIGN_OR_RETURN(std::string key, DrawApiKey());
  ApiKeyEntry entry;
  entry.id = options.id.empty() ? absl::StrFormat("key-%08x", EntropyBits() >> 32) : options.id;
  entry.digest = DigestOfKey(key);
  entry.tenant = options.tenant;
  entry.role = options.role == "operator" ? CallerRole::kOperator : CallerRole::kClient;
  if (options.days > 0) {
    entry.expires_s = static_cast<int64_t>(std::time(nullptr)) + options.days * kSecondsPerDay;
  }
  const std::string line = FormatApiKey(entry);
  RETURN_IF_ERROR(ParseApiKeys(line).status());
  if (options.file.empty()) {
    std::fprintf(stderr, "add this line to the file of the router's --api-keys:\n%s", line.c_str());
  } else {
    RETURN_IF_ERROR(AppendApiKey(options.file, entry));
  }
  return key;
}

int PrintNewKey(const KeysOptions& options) {
  const absl::StatusOr<std::string> key = NewKey(options);
  if (!key.ok()) return ReportError(key.status());
  return (std::cout << *key << std::endl) ? kExitSuccess : kExitFailed;
}

}  // namespace

void AddKeysCommand(CommandLine& line) {
  CommandLine& keys = line.AddCommand("keys", "Make API keys for the clients of a router");
  CommandLine& command = keys.AddCommand(
      "new",
      "Print a new key. It cannot be printed again, because the router's file has only its hash");
  auto options = std::make_shared<KeysOptions>();
  command.Add("--tenant", &options->tenant, "Tenant of all requests with this key")
      .Value("NAME")
      .Required();
  command.Add("--id", &options->id, "Name of the key in the file. Without it, a random one")
      .Value("NAME");
  command.Add("--role", &options->role, "Role of the key's owner")
      .OneOf({"client", "operator"})
      .ShowDefault();
  command.Add("--days", &options->days, "How many days the key is valid. 0: for ever")
      .Range(0, 36'500)
      .ShowDefault();
  command
      .Add("--api-keys", &options->file,
           "The router's file of keys. The key's line is appended to it. Without it, the line "
           "is printed to standard error")
      .Value("FILE");
  command.OnRun([options] { return PrintNewKey(*options); });
}

}  // namespace baton
