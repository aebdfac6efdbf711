// `baton chunks`: lists the prompt chunks that running workers cache.

#include <memory>
#include <string>

#include "baton/v1/worker.grpc.pb.h"
#include "cli/chunk_table_client.h"
#include "cli/client_commands.h"
#include "cli/worker_choice_client.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

// Allows for a wait until the running step ends.
constexpr int64_t kListTimeoutMs = 60'000;

struct ChunksOptions {
  WorkerChoice choice;
  bool json = false;
};

absl::StatusOr<std::string> ListChunks(const ChunksOptions& options,
                                       const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kListTimeoutMs));
  v1::ListChunksResponse list;
  const grpc::Status status = stub->ListChunks(&context, v1::ListChunksRequest(), &list);
  if (!status.ok()) return FromGrpcStatus(status);
  return options.json ? ChunksAsJson(list) : ChunkTable(list);
}

}  // namespace

void AddChunksCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("chunks", "List the prompt chunks that running workers cache");
  auto options = std::make_shared<ChunksOptions>();
  AddWorkerFlags(command, &options->choice);
  command.AddFlag("--json", &options->json, "Print one JSON object for each worker, on a line");
  command.AddHelpText(kChunkColumnsHelp);
  command.OnRun([options] {
    return ForEachWorker(
        options->choice,
        [options](const std::shared_ptr<grpc::Channel>& channel) {
          return ListChunks(*options, channel);
        },
        /*named=*/!options->json);
  });
}

}  // namespace baton
