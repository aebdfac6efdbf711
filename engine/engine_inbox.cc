#include "engine/engine_inbox.h"

#include <algorithm>
#include <utility>

#include "common/str_cat.h"

namespace baton {

absl::Status EngineInbox::Post(Event event, Bound bound) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::UnavailableError("the engine is shutting down");
    if (events_.size() >= kMaxEvents && bound == Bound::kApplies) {
      return absl::ResourceExhaustedError(
          StrCat("the engine's inbox is full (", kMaxEvents, " events)"));
    }
    events_.push_back(std::move(event));
  }
  wake_();
  return absl::OkStatus();
}

// Posts event(core, handle) with the first of `handles` new handles, and returns that handle. If
// the event is refused, calls refuse(reason).
template <typename NamedEvent, typename Refuse>
RequestHandle EngineInbox::PostUnderHandle(NamedEvent event, const Refuse& refuse,
                                           int32_t handles) {
  const RequestHandle handle = next_handle_.fetch_add(static_cast<RequestHandle>(handles));
  absl::Status posted = integrity_check_->error();
  if (posted.ok()) {
    posted =
        Post([handle, event = std::move(event)](WorkerCore& core) mutable { event(core, handle); });
  }
  if (!posted.ok()) refuse(posted);
  return handle;
}

RequestHandle EngineInbox::Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) {
  const int32_t choices = std::clamp(request.n, 1, kMaxChoices);
  return PostUnderHandle(
      [request = std::move(request), sink](WorkerCore& core, RequestHandle handle) mutable {
        core.AddGenerate(handle, std::move(request), std::move(sink));
      },
      [sink](const absl::Status& why) { sink->OnError(why); }, choices);
}

RequestHandle EngineInbox::Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) {
  return PostUnderHandle(
      [request = std::move(request), sink](WorkerCore& core, RequestHandle handle) mutable {
        core.AddPrefill(handle, std::move(request), std::move(sink));
      },
      [sink](const absl::Status& why) { sink->OnDone(why); });
}

RequestHandle EngineInbox::PullPrefix(PullRequest request, const std::shared_ptr<PullSink>& sink) {
  return PostUnderHandle(
      [request = std::move(request), sink](WorkerCore& core, RequestHandle handle) mutable {
        core.PullPrefix(handle, std::move(request), sink);
      },
      [sink](const absl::Status& why) { sink->OnDone(why); });
}

void EngineInbox::SendPrefix(SendPrefixRequest request,
                             const std::function<void(absl::StatusOr<int32_t>)>& done) {
  PostUnderHandle(
      [request = std::move(request), done](WorkerCore& core, RequestHandle handle) {
        done(core.SendPrefix(handle, request));
      },
      done);
}

void EngineInbox::Cancel(RequestHandle handle) {
  // A closed inbox refuses this call. That is harmless: a stopping engine ends every request
  // anyway.
  Post([handle](WorkerCore& core) { core.Cancel(handle); }, Bound::kWaived).IgnoreError();
}

void EngineInbox::PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                                 const std::function<void(absl::Status)>& done) {
  const absl::Status posted = Post([transfer_id, receiver_epoch, done](WorkerCore& core) {
    done(core.PrefillLocally(transfer_id, receiver_epoch));
  });
  if (!posted.ok()) done(posted);
}

bool EngineInbox::Take(std::vector<Event>& events) {
  std::lock_guard lock(mutex_);
  events.swap(events_);
  return !closed_;
}

bool EngineInbox::empty() const {
  std::lock_guard lock(mutex_);
  return events_.empty();
}

void EngineInbox::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_();
}

}  // namespace baton
