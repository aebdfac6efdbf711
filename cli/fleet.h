// Starts, restarts and ends the processes of one `baton up`, with one merged log. Restart starts an
// ended process again with the same arguments, after a delay (cli/restart_backoff.h).
//
// Thread safety: belongs to one thread, which must live as long as the processes
// (cli/child_process.h).
#pragma once

#include <cstdint>
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
#include "common/clock.h"

namespace baton {

class Fleet {
 public:
  // `log` and `clock` must outlive this.
  Fleet(MergedLog* log, const Clock* clock) : log_(log), clock_(clock) {}

  // Starts the process now. The first process must be the router: RouterSays reads its standard
  // output. Internal if the process cannot be started.
  absl::Status Start(FleetMember member);
  // Returns the router's next line of output, if there is one. Never blocks.
  std::optional<std::string> RouterSays();
  // Sets the router's arguments for its next start.
  void ReplaceRouterArguments(std::vector<std::string> arguments);

  // Returns the first process, in the order of starts, that has ended, and how it ended. Returns
  // nothing while all run.
  struct End {
    std::string name;
    std::string how;     // "exit code 1", "signal 9"
    int exit_code = -1;  // negative: ended by a signal
  };
  std::optional<End> FirstEnd() const;
  // Restarts each ended process after its delay. `say` gets one sentence for each end and each
  // start.
  void Restart(const std::function<void(const std::string&)>& say);

  // Ends all processes. The router ends first, so that no request loses its workers.
  void Shutdown();

 private:
  struct Member {
    FleetMember plan;
    std::unique_ptr<ChildProcess> process;  // null while it waits for its next start
    int64_t started_us = 0;
    int64_t next_start_us = 0;
    RestartBackoff backoff;
  };

  absl::Status Launch(Member& member);

  MergedLog* const log_;
  const Clock* const clock_;
  std::vector<Member> members_;  // in the order of their starts: the router first
};

}  // namespace baton
