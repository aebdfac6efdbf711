// `baton`: the command-line tool. Commands live in *_command.cc (local) and *_client.cc (with
// gRPC).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "common/check.h"
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
  CLI::App app("Baton serves large language models with prefill and decode split.");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  app.footer(baton::kExitCodeHelp);  // of every command
  app.failure_message(CLI::FailureMessage::simple);
  int exit_code = baton::kExitSuccess;
  baton::AddRunCommand(app, exit_code);
  baton::AddPerplexityCommand(app, exit_code);
  CLI::App* inspect = baton::AddInspectCommand(app, exit_code);
#ifdef BATON_GRPC
  baton::AddClientCommands(app, *inspect, exit_code);
#else
  (void)inspect;
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? baton::kExitSuccess : baton::kExitUsage;
  }
  return exit_code;
}
