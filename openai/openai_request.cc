#include "openai/openai_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "openai/body_fields.h"
#include "requests/ignored_fields.h"
#include "requests/json_text.h"
#include "requests/json_values.h"
#include "requests/request_fields.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Enough for the most token ids and all other values of a reasonable body.
constexpr size_t kMaxBodyValues = static_cast<size_t>(kMaxPromptTokenIds) + (1 << 16);

constexpr size_t kMostHeaderNames = 16;
constexpr size_t kMostHeaderNameBytes = 64;

bool IsPromptList(const Json& value) {
  return value.is_array() && (value.empty() || value[0].is_string() || value[0].is_array());
}

// Reads one prompt: text or token ids.
absl::Status SetInput(const JsonPlace& place, const Json& value, ClientRequest& request) {
  request.prompt.reset();
  request.prompt_token_ids.reset();
  if (value.is_array()) {
    ASSIGN_OR_RETURN(request.prompt_token_ids, ToTokenIds(place, value));
    return absl::OkStatus();
  }
  if (!value.is_string()) return place.FaultOf("must be a string or an array of token ids");
  request.prompt = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status CheckPromptList(const JsonPlace& place, const Json& list) {
  if (!list.empty() && list.size() <= kMaxPrompts) return absl::OkStatus();
  return place.FaultOf(
      absl::StrCat("has ", list.size(), " prompts; 1 to ", kMaxPrompts, " are allowed"));
}

// Reads every field of the body. Of a list of prompts, `request` gets the first.
absl::Status ReadFields(const JsonPlace& place, const Json& json, OpenAiEndpoint endpoint,
                        RequestStyle style, IgnoredFields& ignored, BodyFields& fields,
                        ClientRequest& request) {
  for (const auto& [name, value] : json.items()) {
    const JsonPlace member = place.Member(name);
    if (style == RequestStyle::kCompletion && name == "prompt" && IsPromptList(value)) {
      RETURN_IF_ERROR(CheckPromptList(member, value));
      RETURN_IF_ERROR(SetInput(member.Element(0), value[0], request));
      continue;
    }
    ASSIGN_OR_RETURN(bool known, ReadRequestField(member, name, value, style, &ignored, request));
    if (!known) {
      ASSIGN_OR_RETURN(known, ReadBodyField(member, name, value, endpoint, ignored, fields));
    }
    if (!known) ignored.Add(member);
  }
  return absl::OkStatus();
}

// Checks fields that depend on each other. REQUIRES: the request is finished.
absl::Status CheckTogether(const JsonPlace& place, const BodyFields& fields,
                           const ClientRequest& request) {
  if (fields.best_of && *fields.best_of > request.n) {
    return place.Member("best_of").FaultOf(absl::StrCat("is ", *fields.best_of, "; at most n, ",
                                                        request.n,
                                                        ", is supported: every answer is sent"));
  }
  if (!fields.echo) return absl::OkStatus();
  const JsonPlace echo = place.Member("echo");
  if (request.sampling.logprobs) return echo.FaultOf("is not supported together with \"logprobs\"");
  if (request.parts) return echo.FaultOf("is not supported for a prompt in parts");
  return absl::OkStatus();
}

// OpenAI's default. An answer that must be longer is as long as it must be.
void SetDefaultLimit(const Json& json, ClientRequest& request) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (FindField(json, name) != nullptr) return;
  }
  request.sampling.max_tokens = std::max(kDefaultCompletionTokens, request.sampling.min_tokens);
}

// Copies the request for each further prompt of a list.
absl::Status AddPrompts(const JsonPlace& place, const Json& list,
                        std::vector<ClientRequest>& prompts) {
  ClientRequest other = prompts.front();
  for (size_t i = 1; i < list.size(); ++i) {
    RETURN_IF_ERROR(SetInput(place.Element(i), list[i], other));
    prompts.push_back(other);
  }
  return absl::OkStatus();
}

AnswerForm FormOf(OpenAiEndpoint endpoint, const BodyFields& fields, bool has_prompt,
                  const std::vector<ClientRequest>& prompts) {
  AnswerForm form = {.endpoint = endpoint,
                     .prompts = static_cast<int32_t>(prompts.size()),
                     .n = prompts.front().n,
                     .stream = fields.stream,
                     .include_usage = fields.include_usage,
                     .continuous_usage = fields.include_usage && fields.continuous_usage_stats,
                     .logprobs = prompts.front().sampling.logprobs.has_value(),
                     .return_token_ids = fields.return_token_ids,
                     .return_ledger = fields.return_ledger};
  if (has_prompt) form.prompt_field = "prompt";
  if (prompts.front().messages) form.prompt_field = "messages";
  if (!fields.echo) return form;
  for (const ClientRequest& prompt : prompts) {
    if (prompt.prompt) {
      form.echo.emplace_back(*prompt.prompt);
    } else {
      form.echo.emplace_back(*prompt.prompt_token_ids);
    }
  }
  return form;
}

bool IsHeaderByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '[' || c == ']';
}

// Other bytes are percent-encoded.
std::string HeaderName(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const std::string shown = IsHeaderByte(c)
                                  ? std::string(1, c)
                                  : absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
    if (out.size() + shown.size() > kMostHeaderNameBytes) break;
    out += shown;
  }
  return out.empty() ? "-" : out;
}

}  // namespace

absl::StatusOr<OpenAiRequest> ReadOpenAiRequest(OpenAiEndpoint endpoint, std::string_view body,
                                                size_t max_bytes) {
  const bool chat = endpoint == OpenAiEndpoint::kChatCompletions;
  const RequestStyle style = chat ? RequestStyle::kChat : RequestStyle::kCompletion;
  ASSIGN_OR_RETURN(const Json json, ParseJson(body, kNotALine,
                                              {.max_bytes = max_bytes,
                                               .max_depth = kMaxBodyDepth,
                                               .max_values = kMaxBodyValues}));
  const JsonPlace place(body, kNotALine);
  if (!json.is_object()) return place.Fault("the body must be a JSON object");
  IgnoredFields ignored;
  BodyFields fields;
  OpenAiRequest out;
  ClientRequest& request = out.prompts.emplace_back();
  RETURN_IF_ERROR(ReadFields(place, json, endpoint, style, ignored, fields, request));
  if (!chat) SetDefaultLimit(json, request);
  RETURN_IF_ERROR(FinishRequest(place, json, style, request));
  RETURN_IF_ERROR(CheckTogether(place, fields, request));
  if (request.session_id.empty()) request.session_id = fields.prompt_cache_key.value_or("");
  request.return_prompt_token_ids = fields.return_token_ids;
  const Json* const prompt = FindField(json, "prompt");
  if (prompt != nullptr && IsPromptList(*prompt)) {
    RETURN_IF_ERROR(AddPrompts(place.Member("prompt"), *prompt, out.prompts));
  }
  out.model = std::move(fields.model);
  out.form = FormOf(endpoint, fields, prompt != nullptr, out.prompts);
  out.ignored_fields = ignored.names();
  std::sort(out.ignored_fields.begin(), out.ignored_fields.end());
  return out;
}

std::string IgnoredFieldsHeader(const std::vector<std::string>& ignored_fields) {
  std::string out;
  for (size_t i = 0; i < std::min(ignored_fields.size(), kMostHeaderNames); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", HeaderName(ignored_fields[i]));
  }
  if (ignored_fields.size() > kMostHeaderNames) {
    absl::StrAppend(&out, ", and ",
                    ignored_fields.size() == IgnoredFields::kMostNames ? "at least " : "",
                    ignored_fields.size() - kMostHeaderNames, " more");
  }
  return out;
}

}  // namespace baton
