// OpenAI's fields that are not fields of a job: those that say how the answer is written, those
// without effect, and those that are refused because they would change the answer.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "openai/answer_form.h"
#include "requests/ignored_fields.h"
#include "requests/json_text.h"

namespace baton {

// The values of these fields in one body.
struct BodyFields {
  std::string model;
  std::optional<std::string> prompt_cache_key;
  std::optional<int32_t> best_of;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool return_token_ids = false;
  bool return_ledger = false;
};

enum class BodyFieldKind : uint8_t { kHonoured, kWithoutEffect, kRefused };

// Reads one field. Null is the same as absent. Returns false if the name is not known here.
// InvalidArgument: a wrong type, or a value that is refused.
absl::StatusOr<bool> ReadBodyField(const JsonPlace& place, const std::string& name,
                                   const nlohmann::json& value, OpenAiEndpoint endpoint,
                                   IgnoredFields& ignored, BodyFields& fields);

// Calls `visit` for each field.
void ForEachBodyField(absl::FunctionRef<void(const char* name, BodyFieldKind kind)> visit);

}  // namespace baton
