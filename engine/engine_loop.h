// An engine's loop without its thread: what a turn does, in which order, and when the next turn is
// due. Production runs it on a thread of its own, the simulation from its event queue.
//
// The caller repeats three calls until Turn returns false, and then ends the loop:
//
//   Rest()   ends what is past its deadline, and says how long the caller may wait
//   Turn()   takes the events of the inbox, then what transfers and steps report, and publishes
//   Step()   when has_step(): one step, then publishes
//
//   Shutdown(), then PollUntilIdle() until it returns true
//
// Invariants:
//  1. A change is published at the end of the turn or step that made it. Publication also happens
//     at least every `idle_turn_us`, provided that the caller waits no longer than Rest says.
//  2. The watchdog is fed between any two operations and disarmed while there is nothing to do.
//  While a
//     step runs on an asynchronous device, the operations of the step feed it.
//  3. Blocks are recounted in a turn without work and without events, never in one that ends.
//
// Thread safety: belongs to the engine thread, but for kv_events() and SnapshotKvEvents, which may
// be called from any.
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
  // A caller with nothing else to do asks PollUntilIdle this often.
  static constexpr int64_t kShutdownPollUs = 1000;

  struct Parts {
    WorkerCore* core;
    KvCacheManager* cache;
    EngineInbox* inbox;
    KvEventFeed* kv_events;
    IdleIntegrityCheck* integrity_check;
    LoopWatchdog* watchdog;
    const Clock* clock;
    // Gives memory back that nothing holds any more, and tells others of the engine's state.
    std::function<void()> publish;
  };

  // All parts outlive the loop.
  explicit EngineLoop(const Parts& parts, int64_t idle_turn_us = kIdleTurnUs)
      : parts_(parts), idle_turn_us_(idle_turn_us) {}

  // Microseconds until the next turn is due. An event, a transfer or a step that reports something
  // makes it due at once. 0: there is work.
  int64_t Rest();
  // False: the inbox is closed, and the loop ends.
  bool Turn();
  bool has_step() const { return parts_.core->has_work(); }
  void Step();

  // Ends every request. Transfers and steps end later.
  void Shutdown();
  // True once no transfer and no step touches a block any more.
  bool PollUntilIdle();

  // Null: this engine keeps no prefix cache, or tells of none.
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
  std::vector<EngineInbox::Event> events_;  // of this turn
};

}  // namespace baton
