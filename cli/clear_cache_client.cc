// `baton clear-cache`: clears the prefix caches of running workers.

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "baton/v1/worker.grpc.pb.h"
#include "cli/client_commands.h"
#include "cli/worker_choice_client.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

// Allows for a wait until the running step ends.
constexpr int64_t kClearTimeoutMs = 60'000;

struct ClearOptions {
  WorkerChoice choice;
  std::optional<std::string> tenant;
  std::optional<std::string> cache_salt;
};

absl::StatusOr<std::string> Clear(const ClearOptions& options, const std::string& address) {
  const auto stub = v1::Worker::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kClearTimeoutMs));
  v1::ClearCacheRequest request;
  if (options.tenant || options.cache_salt) {
    request.mutable_only()->set_tenant(options.tenant.value_or(""));
    request.mutable_only()->set_cache_salt(options.cache_salt.value_or(""));
  }
  v1::ClearCacheResponse cleared;
  const grpc::Status status = stub->ClearCache(&context, request, &cleared);
  if (!status.ok()) return FromGrpcStatus(status);
  return absl::StrFormat("%d blocks freed\n", cleared.freed_blocks());
}

}  // namespace

void AddClearCacheCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("clear-cache", "Clear the prefix caches of running workers");
  auto options = std::make_shared<ClearOptions>();
  AddWorkerFlags(command, &options->choice);
  command.Add("--tenant", &options->tenant, "Clear only prefixes of requests with this tenant");
  command.Add("--cache-salt", &options->cache_salt,
              "Clear only prefixes of requests with this salt");
  command.OnRun([options] {
    return ForEachWorker(options->choice, [options](const std::string& address) {
      return Clear(*options, address);
    });
  });
}

}  // namespace baton
