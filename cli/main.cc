// `baton`: the command-line tool. Commands live in *_command.cc (local) and *_client.cc (with
// gRPC).
#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "common/check.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#ifdef BATON_GRPC
#include "cli/client_commands.h"
#endif

namespace baton {

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s: %s\n",
               std::string(absl::StatusCodeToString(status.code())).c_str(),
               std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace baton

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  baton::CommandLine line("Baton serves large language models with prefill and decode split.");
  baton::AddRunCommand(line);
  baton::AddPerplexityCommand(line);
  [[maybe_unused]] baton::CommandLine& inspect = baton::AddInspectCommand(line);
#ifdef BATON_GRPC
  baton::AddClientCommands(line, inspect);
#endif
  return line.Run(argc, argv);
}
