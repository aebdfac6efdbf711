// What enters an engine from outside its loop: requests, each under a new handle, and other events,
// in the order in which they came.
//
// Invariants:
//  1. Every event that was accepted is given to Take once, also after Close.
//  2. A request that is refused is answered before the call returns; its handle names nothing.
//  3. Requests are bounded by kMaxEvents. Events that only free or report something are not.
//
// Thread safety: every function, from any thread. `wake` and refusals run on the caller's thread,
// without a lock.
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

  // `wake` runs after each accepted event. A request is refused while `check`, which outlives
  // this, has found an error.
  EngineInbox(const IdleIntegrityCheck* integrity_check, std::function<void()> wake)
      : integrity_check_(integrity_check), wake_(std::move(wake)) {}

  // These four become the functions of that name of WorkerCore. Refusals are Engine's.
  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink);
  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink);
  RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink);
  void SendPrefix(SendPrefixRequest request, std::function<void(absl::StatusOr<int32_t>)> done);

  void Cancel(RequestHandle handle);
  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      std::function<void(absl::Status)> done);

  enum class Bound : uint8_t { kApplies, kWaived };
  // ResourceExhausted: the bound is reached. Unavailable: the inbox is closed.
  absl::Status Post(Event event, Bound bound = Bound::kApplies);

  // Swaps `events`, which must be empty, with what has come. False: the inbox is closed, and
  // nothing comes any more.
  bool Take(std::vector<Event>& events);
  bool empty() const;
  // Refuses what comes from now on, and wakes the loop.
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
