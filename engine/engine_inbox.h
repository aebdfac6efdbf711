// Queue of events that enter an engine from other threads, in order of arrival. An event is a
// request under a new handle, or another call on WorkerCore.
//
// Invariants:
//  1. Take returns every accepted event exactly once, also after Close.
//  2. A refused request is answered before the call returns. Its handle refers to nothing.
//  3. At most kMaxEvents events wait when a request is accepted. Events that only free or report
//     something are exempt (Bound::kWaived).
//
// Thread safety: every function may be called from any thread. `wake` and refusals run on the
// caller's thread, without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/idle_integrity_check.h"
#include "engine/request.h"
#include "engine/worker_core.h"

namespace baton {

class EngineInbox {
 public:
  using Event = std::function<void(WorkerCore&)>;
  static constexpr size_t kMaxEvents = 1 << 16;

  // `wake` runs after each accepted event. Requests are refused once `integrity_check`, which must
  // outlive this, has found an error.
  EngineInbox(const IdleIntegrityCheck* integrity_check, std::function<void()> wake)
      : integrity_check_(integrity_check), wake_(std::move(wake)) {}

  // Each of these calls the WorkerCore function of the same name. Refusals are as in Engine.
  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink);
  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  RequestHandle PullPrefix(PullRequest request, const std::shared_ptr<PullSink>& sink);
  void SendPrefix(SendPrefixRequest request,
                  const std::function<void(absl::StatusOr<int32_t>)>& done);

  void Cancel(RequestHandle handle);
  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      const std::function<void(absl::Status)>& done);

  enum class Bound : uint8_t { kApplies, kWaived };
  // ResourceExhausted: kMaxEvents events are waiting. Unavailable: the inbox is closed.
  absl::Status Post(Event event, Bound bound = Bound::kApplies);

  // Swaps `events`, which must be empty, with the waiting events. Returns false if the inbox is
  // closed, so that no more events can come.
  bool Take(std::vector<Event>& events);
  bool empty() const;
  // Refuses all further events, and wakes the loop.
  void Close();

 private:
  template <typename NamedEvent, typename Refuse>
  RequestHandle PostUnderHandle(NamedEvent event, const Refuse& refuse, int32_t handles = 1);

  const IdleIntegrityCheck* const integrity_check_;
  const std::function<void()> wake_;
  std::atomic<RequestHandle> next_handle_{1};
  mutable std::mutex mutex_;
  std::vector<Event> events_;  // guarded by mutex_
  bool closed_ = false;        // guarded by mutex_
};

}  // namespace baton
