// `baton set-role`: changes the role of a running worker.

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "baton/v1/worker.grpc.pb.h"
#include "cli/client_commands.h"
#include "cli/worker_choice_client.h"
#include "common/exit_code.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"
#include "rpc/worker_role_name.h"

namespace baton {
namespace {

constexpr int64_t kSetRoleTimeoutMs = 10'000;

struct SetRoleOptions {
  WorkerChoice choice;
  std::string role;
  int32_t hold_s = 600;
};

v1::WorkerRole RoleNamed(std::string_view name) {
  if (name == "prefill") return v1::WORKER_ROLE_PREFILL;
  return name == "decode" ? v1::WORKER_ROLE_DECODE : v1::WORKER_ROLE_BOTH;
}

absl::StatusOr<std::string> SetRole(const SetRoleOptions& options,
                                    const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kSetRoleTimeoutMs));
  v1::SetRoleRequest request;
  request.set_role(RoleNamed(options.role));
  request.set_lease_ms(int64_t{options.hold_s} * 1000);
  v1::SetRoleResponse answer;
  const grpc::Status status = stub->SetRole(&context, request, &answer);
  if (!status.ok()) return FromGrpcStatus(status);
  std::string text = absl::StrFormat("%s, was %s\n", WorkerRoleName(answer.role()),
                                     WorkerRoleName(answer.before()));
  if (const int32_t missing = answer.routers() - answer.routers_told(); missing > 0) {
    text.insert(text.size() - 1,
                absl::StrFormat("; %d of %d routers have not confirmed the new role", missing,
                                answer.routers()));
  }
  return text;
}

}  // namespace

void AddSetRoleCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand(
      "set-role", "Change the role of a running worker. Its requests, weights and cache stay");
  auto options = std::make_shared<SetRoleOptions>();
  AddWorkerFlags(command, &options->choice);
  command.Add("--role", &options->role, "The new role")
      .OneOf({"prefill", "decode", "both"})
      .Required();
  command
      .Add("--hold-s", &options->hold_s,
           "For this many seconds, the routers' role planners do not change the worker. 0: they "
           "may change it at once")
      .Range(0, 3600)
      .ShowDefault();
  command.OnRun([options] {
    const auto set = [options](const std::shared_ptr<grpc::Channel>& channel) {
      return SetRole(*options, channel);
    };
    const int code = ForEachWorker(options->choice, set);
    if (code == kExitSuccess && options->choice.all && options->role == "prefill") {
      std::fprintf(stderr,
                   "baton: no worker of this router decodes now: it refuses all requests until a "
                   "worker joins with the role decode or both, or gets it\n");
    }
    return code;
  });
}

}  // namespace baton
