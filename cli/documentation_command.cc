// `baton completion` and `baton man`: print shell completions and manual pages of the command line.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "common/man_page.h"
#include "common/status_macros.h"

namespace baton {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::Status WriteManPages(const CommandDescription& program, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create the directory ", directory, ": ", error.message()));
  }
  for (const ManPage& page : ManPages(program)) {
    RETURN_IF_ERROR(WriteFile(absl::StrCat(directory, "/", page.file_name), page.text));
  }
  return absl::OkStatus();
}

}  // namespace

void AddDocumentationCommands(CommandLine& line) {
  CommandLine& completion =
      line.AddCommand("completion", "Print a script that completes commands and options");
  struct Shell {
    const char* name;
    const char* help;
    std::string (*script)(const CommandDescription&);
  };
  for (const Shell& shell :
       {Shell{"bash", "For bash: source <(baton completion bash)", BashCompletion},
        Shell{"zsh", "For zsh: source <(baton completion zsh)", ZshCompletion},
        Shell{"fish", "For fish: baton completion fish | source", FishCompletion}}) {
    completion.AddCommand(shell.name, shell.help).OnRun([&line, script = shell.script] {
      return PrintResult(script(line.Describe())) ? kExitSuccess : kExitFailed;
    });
  }
  CommandLine& man = line.AddCommand("man", "Write a manual page for each command");
  auto directory = std::make_shared<std::string>();
  man.Add("DIRECTORY", directory.get(),
          "Where to write the pages. It is created if it does not exist")
      .Required();
  man.OnRun([&line, directory] {
    const absl::Status written = WriteManPages(line.Describe(), *directory);
    return written.ok() ? kExitSuccess : ReportError(written);
  });
}

}  // namespace baton
