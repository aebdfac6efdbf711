#include "worker_rpc/registration.h"

#include "common/printable_text.h"

namespace baton {

Registration::Heartbeat Registration::Next() {
  said_goodbye_ = leaving_;
  return {.leaving = leaving_, .timeout_ms = leaving_ ? kGoodbyeTimeoutMs : kHeartbeatTimeoutMs};
}

Registration::Outcome Registration::OnAnswer(const absl::Status& call,
                                             const absl::Status& accepted) {
  if (said_goodbye_) return {};
  Outcome outcome{.pause_ms = leaving_    ? 0
                              : call.ok() ? kHeartbeatIntervalMs
                                          : kHeartbeatRetryMs,
                  .trouble = std::nullopt};
  const std::string trouble(call.ok() ? accepted.message() : call.message());
  if (!SameButForNumbers(trouble, trouble_)) outcome.trouble = trouble_ = trouble;
  return outcome;
}

}  // namespace baton
