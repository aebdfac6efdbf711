// Writes one log line for each change of the fleet and each request that loses a worker. A rate
// limit keeps many events from flooding the log, for example when a machine with many requests dies
// or unknown workers try to register. The first kMostAtOnce lines pass, then kLinesASecond per
// second; a line says how many were left out.
//
// Text from peers is escaped.
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
#include "metrics/metric_set.h"
#include "router/line_budget.h"
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
  // `clock` and `metrics` must outlive this. `metrics` counts the lines that are left out; it may
  // be null.
  explicit FleetLog(const Clock* clock, Sink sink = ToLog(), MetricSet* metrics = nullptr)
      : clock_(clock), sink_(std::move(sink)), metrics_(metrics) {}

  void Changed(const FleetChange& change);
  void Refused(std::string_view worker_id, std::string_view address, std::string_view reason);
  // Warns if some decode workers hold less than half as many tokens as others. It warns again only
  // after the difference has gone and come back.
  void CompareRooms(const std::vector<WorkerRecord>& workers);
  // Logs that `worker` was lost for a request. `next` is the worker that continues it; empty: none
  // yet.
  void Lost(std::string_view request, std::string_view worker, const absl::Status& why,
            std::string_view next);
  void Failed(std::string_view request, const absl::Status& why);

 private:
  void Write(Severity severity, std::string_view line);

  const Clock* const clock_;
  const Sink sink_;
  MetricSet* const metrics_;
  std::mutex mutex_;
  LineBudget budget_{kMostAtOnce, kLinesASecond};
  bool rooms_differ_ = false;
};

}  // namespace baton
