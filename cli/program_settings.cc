#include "cli/program_settings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/child_process.h"
#include "common/exit_code.h"
#include "common/file_descriptor.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr int kPollMs = 20;
constexpr int kCheckMs = 30'000;  // limit for a program to check its settings on a busy machine

std::string ReadAll(int file) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = pread(file, buffer, sizeof(buffer), text.size())) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> AskForSettings(const std::string& what, FleetMember member,
                                           const std::function<bool()>& interrupted) {
  using SteadyClock = std::chrono::steady_clock;
  const std::string path = member.arguments.front();
  member.arguments.emplace_back("--check");
  const FileDescriptor output(memfd_create("baton-settings", MFD_CLOEXEC));
  if (output.get() < 0) return absl::InternalError("cannot create a file in memory");
  ASSIGN_OR_RETURN(ChildProcess program,
                   ChildProcess::Start(member.name, member.arguments, member.variables,
                                       output.get(), /*capture=*/false));
  const auto give_up = SteadyClock::now() + std::chrono::milliseconds(kCheckMs);
  while (!program.WaitForEnd(kPollMs)) {
    if (interrupted()) return absl::CancelledError("interrupted");
    if (SteadyClock::now() < give_up) continue;
    return absl::DeadlineExceededError(
        absl::StrCat(path, " did not check its settings within ", kCheckMs, " ms"));
  }
  std::string text = ReadAll(output.get());
  if (program.exit_code() == kExitSuccess) return text;
  while (text.ends_with('\n')) text.pop_back();
  while (text.starts_with("warning: ") && text.find('\n') != std::string::npos) {
    text.erase(0, text.find('\n') + 1);
  }
  const std::string prefix = absl::StrCat(path.substr(path.rfind('/') + 1), ": ");
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  if (program.exit_code() == kExitUsage && !text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("settings of ", what, ": ", text));
  }
  if (program.exit_code() == kExitFailed && !text.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " cannot start: ", text));
  }
  return absl::InternalError(
      absl::StrCat("cannot run ", path, ": ", *program.Ended(), text.empty() ? "" : ": ", text));
}

std::string SettingValue(std::string_view settings, std::string_view name) {
  const std::string begin = absl::StrCat(std::string(name), " = ");
  while (!settings.empty()) {
    const size_t end = std::min(settings.find('\n'), settings.size());
    std::string_view line = settings.substr(0, end);
    settings.remove_prefix(std::min(end + 1, settings.size()));
    if (!line.starts_with(begin)) continue;
    line.remove_prefix(begin.size());
    return std::string(line.substr(0, line.rfind("  (default ")));
  }
  return "";
}

}  // namespace baton
