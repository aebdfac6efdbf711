#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/termination.h"

namespace baton {
namespace {

constexpr int kCannotRunExit = 127;

// Runs in the child between fork and exec. REQUIRES: only async-signal-safe calls.
[[noreturn]] void BecomeProgram(char* const* arguments, char* const* variables, int output, int log,
                                pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotRunExit);  // the parent died before prctl
  setpgid(0, 0);
  UnblockTerminationSignals();
  signal(SIGPIPE, SIG_DFL);  // the parent may ignore it
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execve(arguments[0], arguments, variables);
  _exit(kCannotRunExit);
}

// Returns pointers to the texts, and the final null pointer that exec expects. `texts` must outlive
// them.
std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns this process's variables, and those of `more` that this process does not set.
std::vector<std::string> VariablesAnd(const std::vector<std::string>& more) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  for (const std::string& variable : more) {
    if (std::getenv(variable.substr(0, variable.find('=')).c_str()) == nullptr) {
      all.push_back(variable);
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(std::string name,
                                                 const std::vector<std::string>& arguments,
                                                 const std::vector<std::string>& variables, int log,
                                                 bool capture) {
  int pipe_ends[2] = {-1, -1};
  if (capture && pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("cannot create a pipe: ", std::strerror(errno)));
  }
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> variable_texts = VariablesAnd(variables);
  const std::vector<char*> argument_pointers = PointersTo(argument_texts);
  const std::vector<char*> variable_pointers = PointersTo(variable_texts);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeProgram(argument_pointers.data(), variable_pointers.data(), capture ? pipe_ends[1] : log,
                  log, parent);
  }
  if (capture) close(pipe_ends[1]);
  if (pid < 0) {
    if (capture) close(pipe_ends[0]);
    return absl::InternalError(
        absl::StrCat("cannot start ", arguments[0], ": ", std::strerror(errno)));
  }
  ChildProcess child;
  child.name_ = std::move(name);
  child.pid_ = pid;
  child.output_ = pipe_ends[0];
  if (capture) fcntl(child.output_, F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      pending_(std::move(other.pending_)),
      ending_(std::move(other.ending_)),
      exit_code_(other.exit_code_) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !Ended()) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

std::optional<std::string> ChildProcess::ReadLine() {
  char buffer[4096];
  while (output_ >= 0 && pending_.find('\n') == std::string::npos) {
    const ssize_t count = read(output_, buffer, sizeof(buffer));
    if (count <= 0) return std::nullopt;
    pending_.append(buffer, static_cast<size_t>(count));
  }
  const size_t end = pending_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

std::optional<std::string> ChildProcess::Ended() {
  int status = 0;
  if (!ending_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    if (WIFEXITED(status)) exit_code_ = WEXITSTATUS(status);
    ending_ = WIFEXITED(status) ? absl::StrCat("exit code ", exit_code_)
                                : absl::StrCat("signal ", WTERMSIG(status));
  }
  return ending_;
}

void ChildProcess::Signal(int signal_number) {
  if (pid_ > 0 && !ending_) kill(pid_, signal_number);
}

bool ChildProcess::WaitForEnd(int timeout_ms) {
  using SteadyClock = std::chrono::steady_clock;
  constexpr auto kPoll = std::chrono::milliseconds(10);
  const auto end = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  while (!Ended()) {
    if (SteadyClock::now() >= end) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace baton
