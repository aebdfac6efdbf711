#include "common/error_details.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

namespace baton {
namespace {

constexpr char kParamUrl[] = "baton/param";
constexpr char kRetryAfterUrl[] = "baton/retry-after-ms";
constexpr char kTenantLimitUrl[] = "baton/tenant-limit";

std::optional<std::string> Payload(const absl::Status& status, const char* url) {
  const auto cord = status.GetPayload(url);
  if (!cord.has_value()) return std::nullopt;
  return std::string(*cord);
}

}  // namespace

void SetErrorParam(absl::Status& status, std::string_view param) {
  status.SetPayload(kParamUrl, absl::Cord(std::string(param)));
}

std::string ErrorParam(const absl::Status& status) {
  return Payload(status, kParamUrl).value_or("");
}

void SetRetryAfterMs(absl::Status& status, int64_t ms) {
  status.SetPayload(kRetryAfterUrl, absl::Cord(std::to_string(ms)));
}

std::optional<int64_t> RetryAfterMs(const absl::Status& status) {
  const std::optional<std::string> text = Payload(status, kRetryAfterUrl);
  int64_t ms = 0;
  if (!text || !absl::SimpleAtoi(*text, &ms)) return std::nullopt;
  return ms;
}

void SetTenantLimit(absl::Status& status) { status.SetPayload(kTenantLimitUrl, absl::Cord()); }

bool IsTenantLimit(const absl::Status& status) {
  return Payload(status, kTenantLimitUrl).has_value();
}

}  // namespace baton
