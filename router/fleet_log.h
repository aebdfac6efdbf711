// What happens to the fleet and to the requests that it loses workers under, a line each in the
// router's log. Where much happens at once (a machine with many requests dies; strangers register)
// the log is not flooded: kMostAtOnce lines, then kLinesASecond, and how many were left out.
//
// What peers sent is escaped.
//
// Thread safety: every function, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "router/refused_workers.h"
#include "routing/worker_registry.h"

namespace baton {

class FleetLog {
 public:
  static constexpr int64_t kMostAtOnce = 50;
  static constexpr int64_t kLinesASecond = 2;
  enum class Severity { kInfo, kWarning };
  using Sink = std::function<void(Severity, const std::string& line)>;

  static Sink ToLog();
  // `clock` must outlive this.
  explicit FleetLog(const Clock* clock, Sink sink = ToLog())
      : clock_(clock), sink_(std::move(sink)) {}

  void Changed(const FleetChange& change);
  void Refused(std::string_view worker_id, std::string_view address, std::string_view reason);
  // Says once, until it is no longer so, that some decode workers hold less than half of what
  // others do.
  void CompareRooms(const std::vector<WorkerRecord>& workers);
  // A request was given up by `worker`; `next`: who has it now; empty: nobody yet.
  void Lost(std::string_view request, std::string_view worker, const absl::Status& why,
            std::string_view next);
  void Failed(std::string_view request, const absl::Status& why);

 private:
  void Write(Severity severity, std::string_view line);

  const Clock* const clock_;
  const Sink sink_;
  std::mutex mutex_;
  int64_t left_ = kMostAtOnce;
  int64_t refilled_us_ = 0;
  int64_t left_out_ = 0;
  bool rooms_differ_ = false;
};

}  // namespace baton
