// Flags of `baton bench`.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/connection_flags.h"
#include "common/command_line.h"
#include "loadtest/load_run.h"
#include "loadtest/service_objectives.h"
#include "loadtest/target_address.h"
#include "loadtest/workload.h"

namespace baton {

// Requests of a step of a rate search: if all of them are good, the confidence is 95 %.
inline constexpr int64_t kRateStepRequests = 300;

struct BenchFlags {
  std::string target;
  ConnectionFlags connection;
  std::string model;  // of an HTTP target; empty: its first model
  WorkloadOptions workload;
  LoadRunOptions run;
  std::optional<ArrivalKind> arrivals;
  double rate_per_s = 1;
  double duration_s = 0;
  int64_t requests = 0;
  int64_t warmup = 0;
  uint64_t seed = 1;
  std::string trace;
  int64_t timeout_ms = 600'000;
  int32_t connections = 1;
  bool as_text = false;
  bool stop_at_eos = false;
  ServiceObjectives objectives;
  bool find_rate = false;
  double max_rate_per_s = 1000;
  bool strict = false;
  std::string json_file;
  std::string html_file;
  std::string records_file;
};

void AddBenchFlags(CommandLine& command, BenchFlags& flags);
// Parts of it, for `baton simulate`, which has no target.
void AddLoadFlags(CommandLine& command, BenchFlags& flags);
void AddWorkloadFlags(CommandLine& command, BenchFlags& flags);
void AddReportFlags(CommandLine& command, BenchFlags& flags);

// What the flags mean together.
struct BenchPlan {
  TargetAddress target;
  WorkloadOptions workload;
  LoadRunOptions run;
  bool scales_trace = false;  // the trace gets the mean rate of --rate
  std::vector<std::pair<std::string, std::string>> settings;  // for the report
  std::vector<std::string> notes;  // one sentence for each flag that has no effect
};

// InvalidArgument names the flags that do not fit together.
absl::StatusOr<BenchPlan> PlanBench(const CommandLine& command, const BenchFlags& flags);
// Fills all of the plan but its target.
absl::Status PlanLoad(const CommandLine& command, const BenchFlags& flags, BenchPlan& plan);

// Reads the file of --trace. Stops behind `max_requests` (0: no limit). InvalidArgument names the
// file, the line, the field and the limit.
absl::StatusOr<std::vector<TracedRequest>> ReadTraceFile(WorkloadKind kind, const std::string& path,
                                                         int64_t max_requests);

}  // namespace baton
