// A child process, which never outlives this process.
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
  // arguments[0] is the program's path; `name` is for messages. `variables` ("NAME=VALUE") join
  // those of this process, which go first. Its standard error goes to the file descriptor `log`; so
  // does its standard output, unless `capture` lets ReadLine have that. Internal when the process
  // cannot be started; a program that cannot be run exits with 127.
  static absl::StatusOr<ChildProcess> Start(std::string name,
                                            const std::vector<std::string>& arguments,
                                            const std::vector<std::string>& variables, int log,
                                            bool capture);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) = delete;
  // Kills it if it still runs.
  ~ChildProcess();

  const std::string& name() const { return name_; }
  // A whole line of captured output, if one has come. Never blocks.
  std::optional<std::string> ReadLine();
  // "exit code 1", "signal 9"; nothing while it runs.
  std::optional<std::string> Ended();
  // Of one that has Ended; negative: by a signal.
  int exit_code() const { return exit_code_; }
  void Signal(int signal_number);
  // True when it ended within the time.
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
