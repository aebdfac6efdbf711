// Sends the requests of a LoadRun at their times, and collects the records of their answers.
//
// One thread sends. It never waits for an answer: targets deliver events on their own threads, each
// with the time at which it came.
//
// Thread safety: Run belongs to one thread; Interrupt may be called from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/clock.h"
#include "loadtest/load_run.h"
#include "loadtest/load_target.h"
#include "loadtest/request_record.h"
#include "loadtest/service_objectives.h"

namespace baton {

// State of a run, for a progress line and for ending it early.
struct LoadProgress {
  double elapsed_s = 0;
  int64_t sent = 0;
  int64_t running = 0;
  int64_t whole = 0;
  int64_t refused = 0;
  int64_t failed = 0;
  // Whole answers that missed the objectives, all others that ended, and running ones that have
  // been without content for longer than the objective of the first token.
  int64_t bad = 0;
};

struct DriverOptions {
  ServiceObjectives objectives;                          // what counts as bad
  std::function<void(const LoadProgress&)> on_progress;  // about twice a second; may be empty
  int64_t warmup = 0;    // the first requests, which do not count as bad
  int64_t max_bad = -1;  // ends the run after more bad requests than this; negative: never
};

struct DriverResult {
  std::vector<RequestRecord> records;  // in the order of sending
  double cpu_seconds = 0;              // of this process
  double wall_seconds = 0;
  bool interrupted = false;
  bool ended_early = false;  // by max_bad
};

class LoadDriver {
 public:
  // Both must outlive this.
  LoadDriver(LoadTarget& target, const Clock& clock) : target_(target), clock_(clock) {}

  // Returns when every answer has ended.
  DriverResult Run(LoadRun& run, const DriverOptions& options);
  // Ends the present run and all later ones: cancels what runs, and sends nothing more.
  void Interrupt();

 private:
  class Call;
  struct Ended {
    int64_t order;
    AnswerContent answer;
    RequestRecord record;
  };
  struct Running {
    LoadRequest request;
    std::shared_ptr<Call> call;
  };

  void OnCallEnd(Ended ended);
  void SendDue(LoadRun& run);
  // Takes all ended answers. Returns false if the run was interrupted.
  bool TakeEnded(LoadRun& run, const DriverOptions& options, DriverResult& result);
  LoadProgress ProgressOf(const LoadRun& run, const DriverOptions& options) const;
  // Blocks until an answer ends, a request becomes due, an interrupt, or for half a second.
  void WaitForEvent(const LoadRun& run);
  int64_t NowUs() const { return clock_.NowUs() - start_us_; }

  LoadTarget& target_;
  const Clock& clock_;
  int64_t start_us_ = 0;
  LoadProgress counts_;  // of ended answers
  absl::flat_hash_map<int64_t, Running> running_;
  std::vector<std::pair<int64_t, RequestRecord>> records_;  // with their order of sending

  std::mutex mutex_;
  std::condition_variable event_;
  std::vector<Ended> ended_;  // guarded by mutex_
  bool interrupted_ = false;  // guarded by mutex_
};

// Processor time of this process in seconds.
double ProcessSeconds();

}  // namespace baton
