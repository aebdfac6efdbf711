// The processes of one `baton up`, on one log. Restart starts an ended process again with the same
// arguments, after a delay (cli/restart_backoff.h).
//
// Thread safety: belongs to one thread, which must live as long as the processes shall
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

  // Starts the process now. The first one is the router: RouterSays reads its standard output.
  // Internal: the machine gives no process.
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
  // Restarts each ended process after its delay. `say` gets a sentence for each end and start.
  void Restart(const std::function<void(const std::string&)>& say);

  // Ends all: the router first, so that no request loses its workers.
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
