// `baton clear-cache`: a running worker forgets what it has cached.

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "baton/v1/worker.grpc.pb.h"
#include "cli/client_commands.h"
#include "cli/outcome.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

// A step that runs is waited for.
constexpr int64_t kClearTimeoutMs = 60'000;

struct ClearOptions {
  std::string worker;
  std::optional<std::string> tenant;
  std::optional<std::string> cache_salt;
};

int Clear(const ClearOptions& options) {
  const auto stub = v1::Worker::NewStub(MakeChannel(options.worker));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kClearTimeoutMs));
  v1::ClearCacheRequest request;
  if (options.tenant || options.cache_salt) {
    request.mutable_only()->set_tenant(options.tenant.value_or(""));
    request.mutable_only()->set_cache_salt(options.cache_salt.value_or(""));
  }
  v1::ClearCacheResponse cleared;
  const grpc::Status status = stub->ClearCache(&context, request, &cleared);
  if (!status.ok()) return ReportError(FromGrpcStatus(status));
  std::cout << absl::StrFormat("%d blocks freed\n", cleared.freed_blocks());
  return 0;
}

}  // namespace

void AddClearCacheCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("clear-cache", "A running worker forgets its cached prefixes");
  auto options = std::make_shared<ClearOptions>();
  command.Add("--worker", &options->worker, "HOST:PORT of the worker (see `baton status`)")
      .IsHostPort()
      .Required();
  command.Add("--tenant", &options->tenant, "Only what requests with this tenant left");
  command.Add("--cache-salt", &options->cache_salt, "Only what requests with this salt left");
  command.OnRun([options] { return Clear(*options); });
}

}  // namespace baton
