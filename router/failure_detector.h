// Failure detector for workers. Each round, the prober sends one probe to every worker. A worker
// that has missed the last kMissedProbes probes is silent: dead, frozen, or cut off in one
// direction or both. Its connections and heartbeats do not matter. The probes find a silent worker
// also when no other message is sent.
//
// The detector counts rounds, not time. If this process itself was frozen or short of CPU, its
// rounds come late and no worker is blamed.
//
// Calls attach to the worker that they run on. A worker with calls is probed until the last of them
// ends, even after it has left the registry. So the detector watches a draining worker to its end.
//
// Thread safety: every function, from any thread. The detector itself never calls a listener.
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

// Callback for calls on a silent worker. The prober calls it once per round while the worker is
// silent and the worker's requests can continue elsewhere.
class SilenceListener {
 public:
  virtual ~SilenceListener() = default;
  virtual void OnWorkerSilent(WorkerNumber worker) = 0;
};

class FailureDetector {
 public:
  static constexpr int32_t kMissedProbes = 3;
  // Rounds within the time in which silence must be found: the last answered one and the missed
  // ones.
  static constexpr int32_t kRoundsToSilence = kMissedProbes + 1;

  struct Target {
    WorkerNumber number{0};
    Epoch epoch{0};
    std::string address;
  };

  // Begins a round: updates the set of watched workers and counts missed probes. Returns the
  // workers to probe now.
  std::vector<Target> Round(const std::vector<WorkerRecord>& workers);
  // Records that this worker answered a probe.
  void OnAnswer(WorkerNumber number);
  absl::flat_hash_set<WorkerNumber> Silent() const;

  // Registers a call on the worker until Detach() with the same arguments. The detector holds only
  // a weak reference to the listener.
  void Attach(const Target& target, const std::shared_ptr<SilenceListener>& listener);
  void Detach(WorkerNumber number, const SilenceListener* listener);
  std::vector<std::shared_ptr<SilenceListener>> ListenersOf(WorkerNumber number) const;

 private:
  struct Listener {
    std::weak_ptr<SilenceListener> listener;
    // Order of attachment. Callbacks follow it, so that a simulation can be replayed.
    int64_t turn = 0;
    int32_t times = 0;  // number of attachments: a call may try one worker twice
  };
  struct Watched {
    Target target;
    int32_t missed = 0;
    bool probed = false;    // a probe is in flight
    bool answered = false;  // a probe, since the last round
    bool registered = false;
    absl::flat_hash_map<const SilenceListener*, Listener> listeners;  // key: the listener's address
  };

  mutable std::mutex mutex_;
  std::map<WorkerNumber, Watched> watched_;
  int64_t next_turn_ = 0;
};

}  // namespace baton
