// `baton clear-cache`: clears the prefix caches of running workers, with their prompt chunks, or
// the prompt chunks alone.

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
  bool chunks = false;
};

absl::StatusOr<std::string> Clear(const ClearOptions& options,
                                  const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kClearTimeoutMs));
  v1::ClearCacheRequest request;
  if (options.tenant || options.cache_salt) {
    request.mutable_only()->set_tenant(options.tenant.value_or(""));
    request.mutable_only()->set_cache_salt(options.cache_salt.value_or(""));
  }
  v1::ClearCacheResponse cleared;
  // A call of its own: a worker that does not know it must not clear more than was asked.
  const grpc::Status status = options.chunks ? stub->ClearChunks(&context, request, &cleared)
                                             : stub->ClearCache(&context, request, &cleared);
  if (!status.ok()) return FromGrpcStatus(status);
  return absl::StrFormat("%d blocks freed\n", cleared.freed_blocks());
}

}  // namespace

void AddClearCacheCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("clear-cache", "Clear prefixes and prompt chunks that running workers cache");
  auto options = std::make_shared<ClearOptions>();
  AddWorkerFlags(command, &options->choice);
  command.AddFlag("--chunks", &options->chunks, "Clear only prompt chunks. Cached prefixes stay");
  command
      .Add("--tenant", &options->tenant,
           "Clear only what requests with this tenant have cached, without a salt or with that "
           "of --cache-salt")
      .Value("NAME");
  command.Add(
      "--cache-salt", &options->cache_salt,
      "Clear only what requests with this salt have cached, without a tenant or with that of "
      "--tenant");
  command.OnRun([options] {
    return ForEachWorker(options->choice, [options](const std::shared_ptr<grpc::Channel>& channel) {
      return Clear(*options, channel);
    });
  });
}

}  // namespace baton
