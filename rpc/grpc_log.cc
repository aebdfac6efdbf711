#include "rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>
#include <string_view>

#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kIntervalMs = 10'000;
constexpr size_t kMostLineBytes = 500;
void OnGrpcLine(gpr_log_func_args* line) {
  const std::string_view message = line->message;
  if (line->severity != GPR_LOG_SEVERITY_ERROR || IsHarmlessGrpcLine(message)) return;
  static LineInterval interval(kIntervalMs);
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                             std::chrono::steady_clock::now().time_since_epoch())
                             .count();
  const int64_t left_out = interval.Take(now_ms);
  if (left_out < 0) return;
  LOG(WARNING) << "gRPC: " << message.substr(0, kMostLineBytes) << " (" << left_out
               << " lines were left out since the last such line)";
}

}  // namespace

bool IsHarmlessGrpcLine(std::string_view message) {
  return message.starts_with("No match found for server name");
}

int64_t LineInterval::Take(int64_t now_ms) {
  std::lock_guard lock(mutex_);
  if (has_logged_ && now_ms - logged_ms_ < interval_ms_) {
    ++left_out_;
    return -1;
  }
  has_logged_ = true;
  logged_ms_ = now_ms;
  const int64_t left_out = left_out_;
  left_out_ = 0;
  return left_out;
}

void SilenceGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

void LimitGrpcLog() { gpr_set_log_function(&OnGrpcLine); }

}  // namespace baton
