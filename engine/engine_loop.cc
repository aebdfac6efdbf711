#include "engine/engine_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace baton {

int64_t EngineLoop::Rest() {
  const std::optional<int64_t> deadline_us = parts_.core->CheckDeadlines();
  if (has_step()) return 0;
  if (parts_.core->steps_in_flight() == 0) parts_.watchdog->Disarm();
  if (!deadline_us.has_value()) return idle_turn_us_;
  return std::clamp<int64_t>(*deadline_us - parts_.clock->NowUs(), 0, idle_turn_us_);
}

void EngineLoop::FeedWatchdog() {
  if (parts_.core->steps_in_flight() == 0) parts_.watchdog->Feed();
}

bool EngineLoop::Turn() {
  FeedWatchdog();
  const bool open = parts_.inbox->Take(events_);
  if (!events_.empty() || has_step()) parts_.integrity_check->Worked();
  if (open && events_.empty() && parts_.core->idle()) parts_.integrity_check->OnIdle();
  for (const EngineInbox::Event& event : std::exchange(events_, {})) {
    event(*parts_.core);
    FeedWatchdog();
  }
  parts_.core->PollTransfers();
  parts_.core->PollSteps();
  Publish();
  FeedWatchdog();
  return open;
}

void EngineLoop::Step() {
  parts_.core->Step();
  Publish();
}

void EngineLoop::Publish() {
  PublishKvEvents();
  parts_.publish();
}

void EngineLoop::Shutdown() {
  parts_.core->Shutdown(absl::CancelledError("the worker is shutting down"));
}

bool EngineLoop::PollUntilIdle() {
  if (parts_.core->idle()) return true;
  parts_.core->PollTransfers();
  if (has_step()) parts_.core->Step();  // collects steps in flight
  return parts_.core->idle();
}

void EngineLoop::SnapshotKvEvents(const SnapshotDone& done) {
  if (kv_events() == nullptr) {
    return done(absl::FailedPreconditionError("this worker publishes no KV events"));
  }
  const absl::Status posted = parts_.inbox->Post([this, done](WorkerCore&) {
    PublishKvEvents();
    done(parts_.kv_events->Snapshot([this] { return parts_.cache->SnapshotKvEvents(); }));
  });
  if (!posted.ok()) done(posted);
}

}  // namespace baton
