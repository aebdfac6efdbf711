// Decides which request a load test sends at which time. It has no clock and no threads: the caller
// says what time it is, sends what is due, and reports when answers end.
//
// The intended time of a request never depends on how late an earlier request was sent. That is
// what keeps slow answers from hiding (coordinated omission). It depends on an earlier answer only
// where a user would wait for it: with closed arrivals, and for the later turns of a chat.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "loadtest/arrivals.h"
#include "loadtest/workload.h"

namespace baton {

struct LoadRunOptions {
  ArrivalOptions arrivals;
  // With kTrace: how many times as fast as recorded. > 0.
  double trace_speed = 1;
  int64_t max_requests = 0;  // 0: no limit
  int64_t duration_us = 0;   // no request is intended later; 0: no limit
  // With kClosed: the number of clients, >= 1. Otherwise the most requests at once; 0: no limit. A
  // request that waits for this limit is late.
  int32_t concurrency = 0;
};

struct DueRequest {
  LoadRequest request;
  int64_t intended_us = 0;
  int64_t order = 0;  // position among the requests that were sent, from 0
};

// Requests that were sent shorter than planned, because the context would not hold them.
struct ClipCounts {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t conversations = 0;  // chats that ended before their last turn
};

class LoadRun {
 public:
  // `workload` must outlive this.
  LoadRun(const LoadRunOptions& options, Workload& workload);

  // Returns a request whose intended time has come and counts it as sent.
  std::optional<DueRequest> TakeDue(int64_t now_us);
  // Returns the time at which TakeDue would return a request. nullopt: not before an answer ends.
  std::optional<int64_t> NextDueUs() const;
  // Reports the end of an answer. REQUIRES: TakeDue returned `request`; once for each.
  void OnEnd(const LoadRequest& request, const AnswerContent& answer, int64_t end_us);
  // From now on nothing is due.
  void StopSending();

  // True if nothing runs and nothing will become due.
  bool finished() const { return running_ == 0 && !NextDueUs().has_value(); }
  int64_t sent() const { return sent_; }
  ClipCounts clipped() const;
  int64_t running() const { return running_; }

 private:
  struct Planned {
    int64_t at_us;
    int64_t place;  // order of planning, for equal times
    LoadRequest request;
    bool operator>(const Planned& other) const {
      return at_us != other.at_us ? at_us > other.at_us : place > other.place;
    }
  };

  bool closed() const { return options_.arrivals.kind == ArrivalKind::kClosed; }
  // Adds the workload's next request to the queue, if the arrival process has a time for it.
  void PlanNext();
  void Plan(LoadRequest request, int64_t at_us);

  const LoadRunOptions options_;
  Workload& workload_;
  ArrivalTimes times_;
  // Requests that wait for their time. Of those that do not follow an answer, only the next one is
  // here, except with kClosed, where there is one for each idle client.
  std::priority_queue<Planned, std::vector<Planned>, std::greater<>> planned_;
  int64_t planned_count_ = 0;
  int64_t sent_ = 0;
  ClipCounts clipped_;  // without conversations
  int64_t running_ = 0;
  bool stopped_ = false;
};

}  // namespace baton
