// `baton resize`: grows or shrinks the KV pool of a running worker.

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "baton/v1/worker.grpc.pb.h"
#include "cli/client_commands.h"
#include "cli/outcome.h"
#include "cli/worker_choice_client.h"
#include "engine/engine_options.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

// Allows for the end of the running step and for the allocation of memory.
constexpr int64_t kResizeTimeoutMs = 60'000;
constexpr double kBytesPerMib = 1 << 20;

struct ResizeOptions {
  WorkerChoice choice;
  int64_t kv_cache_mib = 0;
  int32_t blocks = 0;
};

// Says the size in the unit in which it was asked for. Older workers tell no bytes.
std::string NewSize(const v1::ResizePoolResponse& size, bool in_mib) {
  if (!in_mib || size.limit_bytes() == 0) {
    return absl::StrFormat("%d blocks, had %d; %d reserved, %d retiring\n", size.limit(),
                           size.before(), size.reserved(), size.retiring());
  }
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / kBytesPerMib; };
  return absl::StrFormat(
      "%.1f MiB (%d blocks), had %.1f MiB; %.1f MiB reserved, %.1f MiB retiring\n",
      mib(size.limit_bytes()), size.limit(), mib(size.before_bytes()), mib(size.reserved_bytes()),
      mib(size.retiring() * size.limit_bytes() / std::max(size.limit(), 1)));
}

absl::StatusOr<std::string> Resize(const ResizeOptions& options,
                                   const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kResizeTimeoutMs));
  v1::ResizePoolRequest request;
  request.set_kv_cache_mib(options.kv_cache_mib);
  request.set_blocks(options.blocks);
  v1::ResizePoolResponse size;
  const grpc::Status status = stub->ResizePool(&context, request, &size);
  if (!status.ok()) return FromGrpcStatus(status);
  std::string text = NewSize(size, /*in_mib=*/options.blocks == 0);
  if (const int32_t missing = size.routers() - size.routers_told(); missing > 0) {
    text.insert(text.size() - 1,
                absl::StrFormat("; %d of %d routers have not confirmed the new size", missing,
                                size.routers()));
  }
  return text;
}

}  // namespace

void AddResizeCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand(
      "resize", "Grow or shrink the KV pools of running workers. They need --kv-cache-max-mib");
  auto options = std::make_shared<ResizeOptions>();
  AddWorkerFlags(command, &options->choice);
  CommandLine::Option mib =
      command.Add("--kv-cache-mib", &options->kv_cache_mib, "The new size in MiB");
  CommandLine::Option blocks = command.Add("--blocks", &options->blocks, "The new size in blocks");
  mib.Range(1, kMaxKvCacheMib).Excludes(blocks);
  blocks.Range(1, kMaxKvBlocks);
  command.OnRun([options] {
    if (options->kv_cache_mib == 0 && options->blocks == 0) {
      return ReportError(absl::InvalidArgumentError(
          "no size is given: give --kv-cache-mib MIB or --blocks COUNT"));
    }
    return ForEachWorker(options->choice, [options](const std::shared_ptr<grpc::Channel>& channel) {
      return Resize(*options, channel);
    });
  });
}

}  // namespace baton
