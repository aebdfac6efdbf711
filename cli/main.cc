// `baton`: the command-line tool. Commands live in *_command.cc (local) and *_client.cc (with
// gRPC).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "cli/commands.h"
#include "common/check.h"
#ifdef BATON_GRPC
#include "cli/client_commands.h"
#endif

namespace baton {

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s: %s\n",
               std::string(absl::StatusCodeToString(status.code())).c_str(),
               std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

}  // namespace baton

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  CLI::App app("Baton serves large language models with prefill and decode split.");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  app.failure_message(CLI::FailureMessage::simple);
  int exit_code = 0;
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
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return exit_code;
}
