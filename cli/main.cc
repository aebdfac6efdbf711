// `baton`: the command-line tool. Commands live in *_command.cc (local) and *_client.cc (with
// gRPC).
#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/check.h"
#include "common/command_line.h"
#ifdef BATON_GRPC
#include "cli/client_commands.h"
#endif

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  baton::CommandLine line(
      "Baton serves large language models with prefill and decode in separate processes.", "baton");
  baton::AddRunCommand(line);
  baton::AddPerplexityCommand(line);
  baton::AddSimulateCommand(line);
  [[maybe_unused]] baton::CommandLine& inspect = baton::AddInspectCommand(line);
#ifdef BATON_GRPC
  baton::AddClientCommands(line, inspect);
#endif
  baton::AddCertsCommand(line);
  baton::AddKeysCommand(line);
  baton::AddDocumentationCommands(line);
  return baton::EndCommand(line.Run(argc, argv));
}
