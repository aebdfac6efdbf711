// Body of an engine's loop, without its thread: the order of the work in a turn, and the time of
// the next turn. Production runs it on a thread of its own. The simulation runs it from its event
// queue.
//
// The caller repeats three calls until Turn returns false:
//
//   Rest()   ends requests and leases past their deadline; returns how long the caller may wait
//   Turn()   takes the events of the inbox, polls transfers and steps, then publishes
//   Step()   if has_step(): runs one step, then publishes
//
// Then it calls Shutdown() once, and PollUntilIdle() until that returns true.
//
// Invariants:
//  1. A change is published at the end of the turn or step that made it. Publication also happens
//     at least every `idle_turn_us`, provided that the caller waits no longer than Rest says.
//  2. The watchdog is fed between any two operations and disarmed while there is nothing to do.
//     While a step runs on an asynchronous device, only the step feeds it (step_pipeline.h).
//  3. The integrity check runs only in a turn without work and without events. It does not run once
//     the inbox is closed.
//
// Thread safety: engine thread only, except kv_events() and SnapshotKvEvents, which may be called
// from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/engine_inbox.h"
#include "engine/idle_integrity_check.h"
#include "engine/kv_event_feed.h"
#include "engine/loop_watchdog.h"
#include "engine/worker_core.h"

namespace baton {

class EngineLoop {
 public:
  static constexpr int64_t kIdleTurnUs = 50'000;
  // Interval at which a caller with nothing else to do calls PollUntilIdle.
  static constexpr int64_t kShutdownPollUs = 1000;

  struct Parts {
    WorkerCore* core;
    KvCacheManager* cache;
    EngineInbox* inbox;
    KvEventFeed* kv_events;
    IdleIntegrityCheck* integrity_check;
    LoopWatchdog* watchdog;
    const Clock* clock;
    // Returns the memory of retired blocks, and publishes the engine's state.
    std::function<void()> publish;
  };

  // All parts must outlive the loop.
  explicit EngineLoop(const Parts& parts, int64_t idle_turn_us = kIdleTurnUs)
      : parts_(parts), idle_turn_us_(idle_turn_us) {}

  // Ends requests and leases past their deadline. Returns the microseconds until the next turn is
  // due, or 0 if there is work. An event, a transfer or a step that reports something makes the
  // turn due at once.
  int64_t Rest();
  // Returns false once the inbox is closed: the loop ends.
  bool Turn();
  bool has_step() const { return parts_.core->has_work(); }
  void Step();

  // Ends every request. Transfers and steps in flight end later.
  void Shutdown();
  // Returns true once no transfer and no step uses a block any more.
  bool PollUntilIdle();

  // Null if this engine keeps no prefix cache or publishes no events.
  KvEventFeed* kv_events() const { return parts_.cache->publishes() ? parts_.kv_events : nullptr; }
  using SnapshotDone = std::function<void(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>>)>;
  // Engine::SnapshotKvEvents.
  void SnapshotKvEvents(const SnapshotDone& done);

 private:
  void FeedWatchdog();
  void Publish();
  void PublishKvEvents() { parts_.kv_events->Publish(parts_.cache->TakeKvEvents()); }

  const Parts parts_;
  const int64_t idle_turn_us_;
  std::vector<EngineInbox::Event> events_;  // events of this turn
};

}  // namespace baton
