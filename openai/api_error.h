// Errors in OpenAI's form: an HTTP status and a body {"error": {"message", "type", "param",
// "code"}}.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

struct ApiError {
  int status = 500;  // HTTP
  std::string message = {};
  std::string type = {};
  std::string param = {};  // empty: null
  std::string code = {};   // empty: null
  // For the header Retry-After: seconds from now.
  std::optional<int64_t> retry_after_s = {};
  // False: the answer has the header `x-should-retry: false`, because clients retry 5xx themselves.
  bool should_retry = true;
};

// Returns the error for a request that failed with `status`, which is not OK:
//   InvalidArgument, OutOfRange, FailedPrecondition   400 invalid_request_error
//   Unauthenticated 401, PermissionDenied 403, NotFound 404 (model_not_found)
//   ResourceExhausted   503 overloaded; of a tenant's limit 429 rate_limit_exceeded
//   Unavailable 503 unavailable, DeadlineExceeded 504, Cancelled 499, else 500
// `param` is the field that the status names.
ApiError ApiErrorOf(const absl::Status& status);

// The same, for prompt number `prompt` of a body that has `prompts` of them in `field`. The error
// names it as the client did: "messages", "prompt" or "prompt[1]". Without `field`, errors keep
// their names.
ApiError PromptErrorOf(const absl::Status& status, std::string_view field, int32_t prompt,
                       int32_t prompts);

// Returns the error for a request that HTTP itself refuses: 400, 401, 404, 405, 408, 413, 415, 417,
// 429, 431, 500, 501, 503, 505.
ApiError HttpError(int status, std::string message);

// 404. `known`: names of the models that are served, for the message.
ApiError ModelNotFound(std::string_view model, std::string_view known);

// Returns the body. Its text is UTF-8; invalid bytes of the message are replaced.
std::string ErrorBody(const ApiError& error);

}  // namespace baton
