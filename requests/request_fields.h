// The fields of a request in JSON, declared once: names, types, bounds, defaults and help. Jobs,
// the lines of OpenAI's batches and HTTP bodies are read with them.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "requests/client_request.h"
#include "requests/ignored_fields.h"
#include "requests/json_text.h"

namespace baton {

// What a body may have as its input.
enum class RequestStyle : uint8_t {
  kJob,         // any input; "prompt" is text
  kChat,        // /v1/chat/completions: messages
  kCompletion,  // /v1/completions: "prompt" is text or token ids; no messages
};

// Reads one field of a request into `request`. Null leaves the default. Returns false if it is not
// a field of a request. `ignored` as in ReadMessages. Fields that depend on each other are read by
// FinishRequest.
absl::StatusOr<bool> ReadRequestField(const JsonPlace& place, const std::string& name,
                                      const nlohmann::json& value, RequestStyle style,
                                      IgnoredFields* ignored, ClientRequest& request);

// Reads the fields that depend on each other, and then checks everything that needs no model: the
// input, and CheckRequest. The router or the engine, which has the model, checks the request again.
// REQUIRES: ReadRequestField has read all fields of `object`.
absl::Status FinishRequest(const JsonPlace& place, const nlohmann::json& object, RequestStyle style,
                           ClientRequest& request);

// Returns the name with which the message of a check begins, such as "stop" for "stop[1] has 0
// bytes"; empty if that is not a field of a request.
std::string FieldOfMessage(std::string_view message);

// Calls `visit` for each field in the order of the help. The help has line breaks.
void ForEachRequestField(absl::FunctionRef<void(const char* name, const char* help)> visit);

}  // namespace baton
