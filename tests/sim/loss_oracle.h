// Checks how soon the processes notice that another process or a path is lost, while it is lost.
//
// The rules:
//  1. A transfer with a lost worker ends within kPeerLossUs.
//  2. The router finds a lost worker silent within its worker_silence_ms.
//  3. A worker that can answer again is not silent any more after two rounds of probes.
//
// A worker is lost to a process if it is down or paused, or if the path is blocked in at least one
// direction. Every change of the two processes or of the path begins the time anew. A process that
// is down or paused itself need not notice anything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/oracle.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/sim_worker.h"

namespace baton {

class LossOracle {
 public:
  static constexpr int64_t kPeerLossUs = 1'000'000;

  // All arguments must outlive this.
  LossOracle(SimNetwork& network, SimRouter& router,
             const std::vector<std::unique_ptr<SimWorker>>& workers)
      : network_(network), router_(router), workers_(workers) {}

  // Records that bytes between two workers arrive late, but by `until_us`. The loss of their sender
  // is noticed later by the same time.
  void OnLateStream(int64_t until_us);
  // Returns a rule that is broken now, if any.
  std::optional<Violation> Check();

 private:
  // Returns true if the first process, which runs, can hear the second one and be heard.
  bool Reaches(int32_t from, int32_t to);
  // Returns the time of the last change of the two processes and of the paths between them.
  int64_t ChangedUs(int32_t one, int32_t other);
  bool Runs(int32_t node);
  std::optional<Violation> CheckTransfers(const SimWorker& worker, int32_t node);
  std::optional<Violation> CheckRouter();
  std::optional<Violation> CheckProbed(const WorkerRecord& record, SimWorker& worker);

  SimNetwork& network_;
  SimRouter& router_;
  const std::vector<std::unique_ptr<SimWorker>>& workers_;
  int64_t streams_late_until_us_ = 0;
  // Key: the router's incarnation, and a worker's number there. Value: when it was first seen.
  std::map<std::pair<uint64_t, WorkerNumber>, int64_t> registered_us_;
};

}  // namespace baton
