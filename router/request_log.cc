#include "router/request_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr size_t kMostQuotedBytes = 256;

std::string Quoted(std::string_view text) {
  const std::string_view shown = text.substr(0, kMostQuotedBytes);
  return StrCat("\"", absl::CHexEscape(std::string(shown)), "\"");
}

std::string Milliseconds(int64_t us) {
  return absl::StrFormat("%.1f", static_cast<double>(us) / 1000);
}

std::string LineOf(const RequestLog::Entry& entry) {
  std::string line = StrCat("request id=", Quoted(entry.id),
                            " endpoint=", kEndpointNames[static_cast<size_t>(entry.endpoint)],
                            " code=", kStatusCodeNames[static_cast<size_t>(LabelOf(entry.code))],
                            " prompt_tokens=", entry.prompt_tokens,
                            " cached_tokens=", entry.cached_tokens, " tokens=", entry.tokens);
  if (entry.first_token_us > 0) line += " first_token_ms=" + Milliseconds(entry.first_token_us);
  line += " total_ms=" + Milliseconds(entry.total_us);
  if (!entry.prefill_worker.empty()) line += " prefill_worker=" + Quoted(entry.prefill_worker);
  if (!entry.decode_worker.empty()) line += " decode_worker=" + Quoted(entry.decode_worker);
  if (!entry.error.empty()) line += " error=" + Quoted(entry.error);
  return line;
}

}  // namespace

RequestLog::Sink RequestLog::ToLog() {
  return [](const std::string& line) { LOG(INFO) << line; };
}

RequestLog::RequestLog(int32_t lines_a_second, const Clock* clock, MetricSet* metrics, Sink sink)
    : on_(lines_a_second > 0),
      clock_(clock),
      metrics_(metrics),
      sink_(std::move(sink)),
      ended_(kSecondsAtOnce * std::max(1, lines_a_second), std::max(1, lines_a_second)),
      refused_(ended_) {}

void RequestLog::Ended(const Entry& entry) {
  Write(ended_, "ended", [&] { return LineOf(entry); });
}

void RequestLog::Refused(std::string_view id, Endpoint endpoint, const absl::Status& status) {
  Write(refused_, "refused", [&] {
    return StrCat("request id=", Quoted(id),
                  " endpoint=", kEndpointNames[static_cast<size_t>(endpoint)],
                  " code=", kStatusCodeNames[static_cast<size_t>(LabelOf(status))],
                  " refused=", Quoted({status.message().data(), status.message().size()}));
  });
}

void RequestLog::Write(LineBudget& budget, std::string_view kind,
                       absl::FunctionRef<std::string()> line) {
  if (!on_) return;
  int64_t left_out = 0;
  {
    std::lock_guard lock(mutex_);
    if (!budget.Take(clock_->NowUs())) {
      if (metrics_ != nullptr) metrics_->Add(Metric::kLogLinesDropped, 1);
      return;
    }
    left_out = budget.TakeLeftOut();
  }
  if (left_out > 0) {
    sink_(StrCat(left_out, " lines about ", kind, " requests were left out (--request-log-lines)"));
  }
  sink_(line());
}

}  // namespace baton
