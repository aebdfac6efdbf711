// Child process that never outlives this process.
//
// The kernel kills the child when this process dies. The child has its own process group, so Ctrl-C
// at the terminal reaches only this process, which then ends its children in order. The child gets
// the termination signals unblocked.
//
// Thread safety: belongs to the thread that started it. This thread must live as long as the child,
// because the kernel kills the child when the thread ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

class ChildProcess {
 public:
  // Starts a process. arguments[0] is the program's path; `name` is for messages. The child
  // inherits this process's variables and gets those of `variables` ("NAME=VALUE") that are not
  // set. Its standard error goes to the file descriptor `log`. Its standard output goes to ReadLine
  // with `capture`, else also to `log`.
  //
  // Internal if the process cannot be started. If the program cannot be executed, the child exits
  // with 127.
  static absl::StatusOr<ChildProcess> Start(std::string name,
                                            const std::vector<std::string>& arguments,
                                            const std::vector<std::string>& variables, int log,
                                            bool capture);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) = delete;
  // Kills the process if it still runs.
  ~ChildProcess();

  const std::string& name() const { return name_; }
  // Returns the next complete line of captured output, if there is one. Never blocks.
  std::optional<std::string> ReadLine();
  // Returns how the process ended ("exit code 1", "signal 9"), or nothing while it runs.
  std::optional<std::string> Ended();
  // Exit code; negative if a signal ended the process. REQUIRES: Ended() returned a value.
  int exit_code() const { return exit_code_; }
  void Signal(int signal_number);
  // Waits for the end. Returns true if the process ended within the time.
  bool WaitForEnd(int timeout_ms);

 private:
  ChildProcess() = default;

  std::string name_;
  pid_t pid_ = -1;
  int output_ = -1;
  std::string pending_;
  std::optional<std::string> ending_;
  int exit_code_ = -1;
};

}  // namespace baton
