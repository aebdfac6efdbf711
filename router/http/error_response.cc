#include "router/http/error_response.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

HttpResponse JsonResponse(int status, std::string body) {
  return {
      .status = status, .content_type = "application/json", .headers = {}, .body = std::move(body)};
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response = JsonResponse(error.status, ErrorBody(error));
  if (error.retry_after_s.has_value()) {
    response.headers.push_back({"Retry-After", absl::StrCat(*error.retry_after_s)});
  }
  if (!error.should_retry) response.headers.push_back({"x-should-retry", "false"});
  return response;
}

}  // namespace baton
