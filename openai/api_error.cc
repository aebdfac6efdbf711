#include "openai/api_error.h"

#include <algorithm>
#include <iterator>

#include "common/error_details.h"
#include "common/printable_text.h"
#include "common/str_cat.h"
#include "openai/json_output.h"
#include "requests/request_fields.h"

namespace baton {
namespace {

constexpr char kInvalidRequest[] = "invalid_request_error";
constexpr char kServerError[] = "server_error";
constexpr char kTimeoutError[] = "timeout_error";

constexpr int64_t kDefaultRetryAfterS = 1;
// OpenAI's clients obey no longer time.
constexpr int64_t kMostRetryAfterS = 60;

struct ErrorKind {
  int status;
  const char* type;
  const char* code;  // empty: null
};

constexpr ErrorKind kHttpErrors[] = {
    {400, kInvalidRequest, ""},
    {401, kInvalidRequest, "invalid_api_key"},
    {404, kInvalidRequest, "not_found"},
    {405, kInvalidRequest, "method_not_allowed"},
    {408, kTimeoutError, "request_timeout"},
    {413, kInvalidRequest, "request_too_large"},
    {415, kInvalidRequest, "unsupported_media_type"},
    {417, kInvalidRequest, "expectation_failed"},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {431, kInvalidRequest, "headers_too_large"},
    {500, kServerError, "internal_error"},
    {501, kInvalidRequest, "not_implemented"},
    {503, kServerError, "overloaded"},
    {505, kInvalidRequest, "http_version_not_supported"},
};

ErrorKind KindOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return {400, kInvalidRequest, ""};
    case absl::StatusCode::kUnauthenticated:
      return {401, kInvalidRequest, "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {403, kInvalidRequest, "permission_denied"};
    case absl::StatusCode::kNotFound:
      return {404, kInvalidRequest, "model_not_found"};
    case absl::StatusCode::kResourceExhausted:
      if (IsTenantLimit(status)) return {429, "rate_limit_error", "rate_limit_exceeded"};
      return {503, kServerError, "overloaded"};
    case absl::StatusCode::kUnavailable:
      return {503, kServerError, "unavailable"};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, kTimeoutError, "timeout"};
    case absl::StatusCode::kCancelled:
      return {499, kInvalidRequest, "cancelled"};
    case absl::StatusCode::kUnimplemented:
      return {501, kInvalidRequest, "not_implemented"};
    default:
      return {500, kServerError, "internal_error"};
  }
}

// Returns FIELD of a message that begins with a part of the prompt: "part 2 (FIELD) …" (PartName).
std::string FieldOfPart(std::string_view message) {
  if (!message.starts_with("part ")) return "";
  const size_t begin = message.find_first_not_of("0123456789", 5);
  if (begin == std::string_view::npos || !message.substr(begin).starts_with(" (")) return "";
  return std::string(message.substr(begin + 2, message.find(')', begin) - begin - 2));
}

bool IsAboutTheContext(std::string_view message) {
  return (message.starts_with("the prompt has ") || !FieldOfPart(message).empty()) &&
         message.find("the context of ") != std::string_view::npos;
}

// Returns the field that the status names, or that its message is about.
std::string ParamOf(const absl::Status& status) {
  std::string param = ErrorParam(status);
  if (!param.empty()) return param;
  const std::string message(status.message());
  param = FieldOfMessage(message);
  if (!param.empty()) return param;
  return FieldOfPart(message);
}

int64_t RetryAfterS(const absl::Status& status) {
  const std::optional<int64_t> ms = RetryAfterMs(status);
  if (!ms) return kDefaultRetryAfterS;
  return std::clamp((*ms + 999) / 1000, kDefaultRetryAfterS, kMostRetryAfterS);
}

}  // namespace

ApiError ApiErrorOf(const absl::Status& status) {
  const ErrorKind kind = KindOf(status);
  ApiError error = {.status = kind.status,
                    .message = std::string(status.message()),
                    .type = kind.type,
                    .param = {},
                    .code = kind.code};
  if (kind.status == 400) {
    error.param = ParamOf(status);
    if (IsAboutTheContext(error.message)) error.code = "context_length_exceeded";
  }
  if (kind.status == 429 || kind.status == 503) error.retry_after_s = RetryAfterS(status);
  error.should_retry = kind.status != 504;
  return error;
}

ApiError PromptErrorOf(const absl::Status& status, std::string_view field, int32_t prompt,
                       int32_t prompts) {
  constexpr std::string_view kIds = "prompt_token_ids";
  ApiError error = ApiErrorOf(status);
  if (error.status != 400 || field.empty()) return error;
  const bool about_ids = error.param == kIds && error.message.starts_with(kIds);
  const bool about_part = !FieldOfPart(error.message).empty();  // the router split the prompt
  const bool about_prompt = about_ids || about_part || error.param == field ||
                            (error.param.empty() && error.message.starts_with("the prompt has "));
  if (!about_prompt) return error;
  error.param = prompts == 1 ? std::string(field) : StrCat(field, "[", prompt, "]");
  if (about_ids) {
    error.message.replace(0, kIds.size(), error.param);
  } else if (prompts > 1) {
    error.message = StrCat(error.param, ": ", error.message);
  }
  return error;
}

ApiError HttpError(int status, std::string message) {
  const auto* const found =
      std::find_if(std::begin(kHttpErrors), std::end(kHttpErrors),
                   [&](const ErrorKind& kind) { return kind.status == status; });
  ApiError error = {
      .status = status, .message = std::move(message), .type = {}, .param = {}, .code = {}};
  if (found == std::end(kHttpErrors)) {
    error.type = status < 500 ? kInvalidRequest : kServerError;
  } else {
    error.type = found->type;
    error.code = found->code;
  }
  if (status == 429 || status == 503) error.retry_after_s = kDefaultRetryAfterS;
  return error;
}

ApiError ModelNotFound(std::string_view model, std::string_view known) {
  return {.status = 404,
          .message = StrCat("the model \"", Printable(model, 128),
                            "\" is not served here; served: ", known),
          .type = kInvalidRequest,
          .param = "model",
          .code = "model_not_found"};
}

std::string ErrorBody(const ApiError& error) {
  JsonOutput out;
  out.BeginObject().Key("error").BeginObject();
  out.Key("message").Text(error.message);
  out.Key("type").Text(error.type);
  out.Key("param").TextOrNull(error.param);
  out.Key("code").TextOrNull(error.code);
  out.EndObject().EndObject();
  return out.Take();
}

}  // namespace baton
