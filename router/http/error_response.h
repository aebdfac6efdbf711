// Answers with an error in OpenAI's form.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "http/http_message.h"
#include "openai/api_error.h"

namespace baton {

HttpResponse ErrorResponse(const ApiError& error);
HttpResponse JsonResponse(int status, std::string body);

}  // namespace baton
