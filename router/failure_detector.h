// Which workers still answer. Everyone is probed once a round; who has answered none of the last
// kMissedProbes probes is silent: dead, frozen, or cut off in one direction or both, whatever its
// connections and heartbeats say. Silence is found also when nothing else is sent.
//
// Counted in rounds, not in time: where this process was itself frozen or short of CPU, rounds are
// late and nobody is blamed for it.
//
// Calls attach to the worker that they run on; a worker with calls is probed also after it has left
// the registry, until the last one ends. So a drain is watched to its end.
//
// Thread safety: every function, from any thread; listeners are called by nobody here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "routing/worker_registry.h"

namespace baton {

// Hears that a worker is silent whose calls should go on elsewhere; again with every round.
class SilenceListener {
 public:
  virtual ~SilenceListener() = default;
  virtual void OnWorkerSilent(WorkerNumber worker) = 0;
};

class FailureDetector {
 public:
  static constexpr int32_t kMissedProbes = 3;
  // Rounds that fit into the time in which silence is to be found: the probe before it and those
  // that are missed.
  static constexpr int32_t kRoundsToSilence = kMissedProbes + 1;

  struct Target {
    WorkerNumber number{0};
    Epoch epoch{0};
    std::string address;
  };

  // Begins a round: takes in who is there, counts what was missed. Returns who is to be probed now.
  std::vector<Target> Round(const std::vector<WorkerRecord>& workers);
  // A probe of this worker was answered.
  void OnAnswer(WorkerNumber number);
  absl::flat_hash_set<WorkerNumber> Silent() const;

  // A call runs there, until Detach with the same arguments. The listener is not kept alive.
  void Attach(const Target& target, const std::shared_ptr<SilenceListener>& listener);
  void Detach(WorkerNumber number, const SilenceListener* listener);
  std::vector<std::shared_ptr<SilenceListener>> ListenersOf(WorkerNumber number) const;

 private:
  struct Listener {
    std::weak_ptr<SilenceListener> listener;
    int64_t turn = 0;   // who came first hears first, so that a simulation can be replayed
    int32_t times = 0;  // attached: a call may try one worker twice
  };
  struct Watched {
    Target target;
    int32_t missed = 0;
    bool probed = false;    // a probe is out that may be missed
    bool answered = false;  // since the last round
    bool registered = false;
    absl::flat_hash_map<const SilenceListener*, Listener> listeners;  // by address
  };

  mutable std::mutex mutex_;
  std::map<WorkerNumber, Watched> watched_;
  int64_t next_turn_ = 0;
};

}  // namespace baton
