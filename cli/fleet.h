// The processes of one `baton up`, on one log. A process that ends is started again with the same
// arguments, after a while (cli/restart_backoff.h).
//
// Thread safety: belongs to one thread, which must live as long as the processes shall
// (cli/child_process.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/child_process.h"
#include "cli/fleet_plan.h"
#include "cli/merged_log.h"
#include "cli/restart_backoff.h"

namespace baton {

class Fleet {
 public:
  // `log` must outlive this.
  explicit Fleet(MergedLog* log) : log_(log) {}

  // Starts it now. The first one is the router, whose standard output RouterSays reads. Internal
  // when there is no process to be had.
  absl::Status Start(FleetMember member);
  // The router's next line of output, if one has come. Never blocks.
  std::optional<std::string> RouterSays();
  // From its next start on, the router has these arguments.
  void ReplaceRouterArguments(std::vector<std::string> arguments);

  // The first process that has ended since its start, by name and how; nothing while all run.
  struct End {
    std::string name;
    std::string how;     // "exit code 1", "signal 9"
    int exit_code = -1;  // negative: ended by a signal
  };
  std::optional<End> FirstEnd() const;
  // Starts again what ended, when its time has come. `say` gets a sentence for each end and start.
  void Restart(const std::function<void(const std::string&)>& say);

  // Ends all: the router first, so that no request loses its workers.
  void Shutdown();

 private:
  using SteadyClock = std::chrono::steady_clock;

  struct Member {
    FleetMember plan;
    std::unique_ptr<ChildProcess> process;  // null while it waits for its next start
    SteadyClock::time_point started;
    SteadyClock::time_point next_start;
    RestartBackoff backoff;
  };

  absl::Status Launch(Member& member);

  MergedLog* const log_;
  std::vector<Member> members_;  // in the order of their starts: the router first
};

}  // namespace baton
