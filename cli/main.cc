// `baton`: the command-line tool. Commands live in *_command.cc (local) and *_client.cc (with
// gRPC).
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/check.h"
#include "common/command_line.h"
#ifdef BATON_GRPC
#include "cli/client_commands.h"
#endif

namespace {

// Returns the arguments with `help`, `help COMMAND` and `version` replaced by the flags that mean
// the same.
std::vector<const char*> WithFlags(int argc, const char* const* argv) {
  std::vector<const char*> out(argv, argv + argc);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "version") out[1] = "--version";
  if (first == "help") {
    out.erase(out.begin() + 1);
    out.push_back("--help");
  }
  return out;
}

}  // namespace

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
  const std::vector<const char*> arguments = WithFlags(argc, argv);
  return baton::EndCommand(line.Run(static_cast<int>(arguments.size()), arguments.data()));
}
