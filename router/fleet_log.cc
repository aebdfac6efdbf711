#include "router/fleet_log.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "common/printable_text.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kMostLineBytes = 2048;

std::string_view RoleText(WorkerRole role) {
  switch (role) {
    case WorkerRole::kPrefill:
      return "prefill worker ";
    case WorkerRole::kDecode:
      return "decode worker ";
    case WorkerRole::kBoth:
      return "worker ";
  }
  return "worker ";
}

std::string_view ChangeText(FleetChange::Kind kind) {
  switch (kind) {
    case FleetChange::Kind::kJoined:
      return " joined";
    case FleetChange::Kind::kLeft:
      return " left";
    case FleetChange::Kind::kReplaced:
      return " was silent; another worker has taken its id or address";
    case FleetChange::Kind::kExpired:
      return " is gone: no heartbeat came for --worker-expiry-ms";
    case FleetChange::Kind::kUnreachable:
      return " is unreachable: a call to it failed";
    case FleetChange::Kind::kReachable:
      return " is reachable again";
    case FleetChange::Kind::kSilent:
      return " answers no probes: its requests move to other workers";
    case FleetChange::Kind::kAnswers:
      return " answers probes again";
    case FleetChange::Kind::kRoleChanged:
      return " has a new role";
  }
  return "";
}

bool IsGood(FleetChange::Kind kind) {
  using Kind = FleetChange::Kind;
  return kind == Kind::kJoined || kind == Kind::kLeft || kind == Kind::kReachable ||
         kind == Kind::kAnswers || kind == Kind::kRoleChanged;
}

// Returns the tokens of one sequence that the worker can hold.
int64_t Room(const WorkerReport& report) {
  return std::min(
      report.RoomFor(std::numeric_limits<int64_t>::max()),
      report.pool_tokens > 0 ? report.pool_tokens : std::numeric_limits<int64_t>::max());
}

}  // namespace

FleetLog::Sink FleetLog::ToLog() {
  return [](Severity severity, const std::string& line) {
    if (severity == Severity::kInfo) {
      LOG(INFO) << line;
    } else {
      LOG(WARNING) << line;
    }
  };
}

void FleetLog::Changed(const FleetChange& change) {
  const WorkerReport& report = change.report;
  std::string line =
      StrCat(RoleText(report.role), report.id, " at ", report.address, ChangeText(change.kind));
  if (change.kind == FleetChange::Kind::kJoined) {
    line += StrCat(": model ", report.model_name.empty() ? report.model : report.model_name,
                   ", room for ", Room(report), " tokens of a sequence; backend ", report.backend,
                   ", protocol versions ", report.protocol.ToString(),
                   "; fingerprint: ", report.fingerprint);
  }
  Write(IsGood(change.kind) ? Severity::kInfo : Severity::kWarning, line);
}

void FleetLog::Refused(std::string_view worker_id, std::string_view address,
                       std::string_view reason) {
  Write(Severity::kWarning, StrCat("worker ", worker_id, " at ", address, " is refused: ", reason));
}

void FleetLog::CompareRooms(const std::vector<WorkerRecord>& workers) {
  const WorkerReport* least = nullptr;
  const WorkerReport* most = nullptr;
  for (const WorkerRecord& worker : workers) {
    const WorkerReport& report = worker.report;
    if (!worker.CanDecode() || report.pool_tokens == 0) continue;
    if (least == nullptr || Room(report) < Room(*least)) least = &report;
    if (most == nullptr || Room(report) > Room(*most)) most = &report;
  }
  const bool differ = least != nullptr && Room(*most) / 2 > Room(*least);
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(rooms_differ_, differ) || !differ) return;
  }
  Write(Severity::kWarning,
        StrCat("decode workers' rooms differ: ", least->id, " holds ", Room(*least),
               " tokens of a sequence, ", most->id, " ", Room(*most),
               "; requests without max_tokens prefer the larger (--kv-cache-mib)"));
}

void FleetLog::Lost(std::string_view request, std::string_view worker, const absl::Status& why,
                    std::string_view next) {
  Write(Severity::kWarning,
        StrCat("request ", request, ": worker ", worker, " was lost (", std::string(why.message()),
               next.empty() ? ")" : "); it continues on ", next));
}

void FleetLog::Failed(std::string_view request, const absl::Status& why) {
  Write(Severity::kWarning, StrCat("request ", request, " failed: ", why.ToString()));
}

void FleetLog::Write(Severity severity, std::string_view line) {
  std::lock_guard lock(mutex_);
  if (!budget_.Take(clock_->NowUs())) {
    if (metrics_ != nullptr) metrics_->Add(Metric::kLogLinesDropped, 1);
    return;
  }
  if (const int64_t left_out = budget_.TakeLeftOut(); left_out > 0) {
    sink_(Severity::kWarning, StrCat(left_out, " lines like these were left out"));
  }
  sink_(severity, Printable(line, kMostLineBytes));
}

}  // namespace baton
