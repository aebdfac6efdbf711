#include "cli/jobs.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/request_check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJobDepth = 8;
// Every token id, and all else that a job of sense may hold. An object or array counts twice, a key
// once.
constexpr size_t kMaxJobValues = kMaxJobTokenIds + (1 << 16);

absl::Status WrongType(const std::string& field, const char* wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" must be ", wanted));
}

template <typename Integer>
absl::StatusOr<Integer> ToInteger(const std::string& field, const Json& value) {
  if (!value.is_number_integer()) return WrongType(field, "a whole number");
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<Integer>::max())) {
      return static_cast<Integer>(number);
    }
  } else if (std::is_signed_v<Integer>) {
    const auto number = value.get<int64_t>();
    if (number >= static_cast<int64_t>(std::numeric_limits<Integer>::min())) {
      return static_cast<Integer>(number);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", field, "\" is ", value.dump(), "; ", std::numeric_limits<Integer>::min(),
                   "–", std::numeric_limits<Integer>::max(), " is allowed"));
}

absl::StatusOr<std::vector<TokenId>> ToTokenIds(const std::string& field, const Json& value) {
  if (!value.is_array()) return WrongType(field, "an array of token ids");
  if (value.size() > kMaxJobTokenIds) {
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" has ", value.size(),
                                                   " token ids; at most ", kMaxJobTokenIds));
  }
  std::vector<TokenId> out;
  out.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(const TokenId id,
                     ToInteger<TokenId>(absl::StrCat(field, "[", i, "]"), value[i]));
    out.push_back(id);
  }
  return out;
}

absl::StatusOr<std::string> ToText(const std::string& field, const Json& value) {
  if (!value.is_string()) return WrongType(field, "a string");
  return value.get<std::string>();
}

absl::StatusOr<std::vector<ChatMessage>> ToMessages(const Json& value) {
  if (!value.is_array()) return WrongType("messages", "an array of messages");
  std::vector<ChatMessage> out;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string field = absl::StrCat("messages[", i, "]");
    if (!value[i].is_object()) return WrongType(field, "an object");
    ChatMessage message;
    for (const auto& [key, part] : value[i].items()) {
      ASSIGN_OR_RETURN(std::string text, ToText(absl::StrCat(field, ".", key), part));
      if (key == "role") {
        message.role = std::move(text);
      } else if (key == "content") {
        message.content = std::move(text);
      } else {
        return absl::InvalidArgumentError(absl::StrCat("\"", field, ".", key, "\" is not known"));
      }
    }
    out.push_back(std::move(message));
  }
  return out;
}

absl::Status SetNumber(const std::string& field, const Json& value, float& out) {
  if (!value.is_number()) return WrongType(field, "a number");
  out = value.get<float>();
  return absl::OkStatus();
}

template <typename Target>
absl::Status SetInteger(const std::string& field, const Json& value, Target& out) {
  if constexpr (std::is_integral_v<Target>) {
    ASSIGN_OR_RETURN(out, ToInteger<Target>(field, value));
  } else {
    ASSIGN_OR_RETURN(out, ToInteger<typename Target::value_type>(field, value));
  }
  return absl::OkStatus();
}

absl::Status SetLogitBias(const std::string&, const Json& value, Job& job) {
  if (!value.is_object()) return WrongType("logit_bias", "an object of token id to number");
  for (const auto& [key, bias] : value.items()) {
    TokenId token = 0;
    if (!absl::SimpleAtoi(key, &token)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"logit_bias\": \"", key, "\" is not a token id"));
    }
    RETURN_IF_ERROR(
        SetNumber(absl::StrCat("logit_bias[", key, "]"), bias, job.sampling.logit_bias[token]));
  }
  return absl::OkStatus();
}

// One limit under either name.
absl::Status SetMaxTokens(const std::string& field, const Json& value, Job& job) {
  ASSIGN_OR_RETURN(const int32_t max_tokens, ToInteger<int32_t>(field, value));
  SamplingParams& sampling = job.sampling;
  if (sampling.max_tokens.value_or(max_tokens) != max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"max_tokens\" and \"max_completion_tokens\" are one limit, but are ",
                     std::min(*sampling.max_tokens, max_tokens), " and ",
                     std::max(*sampling.max_tokens, max_tokens)));
  }
  sampling.max_tokens = max_tokens;
  return absl::OkStatus();
}

// Fields whose meaning depends on each other: SetLogprobs reads them.
absl::Status ReadTogether(const std::string&, const Json&, Job&) { return absl::OkStatus(); }

const Json* FindField(const Json& job, const char* field) {
  const auto found = job.find(field);
  return found == job.end() || found->is_null() ? nullptr : &*found;
}

// "logprobs" is a number of alternatives, or true and "top_logprobs" is that number.
absl::Status SetLogprobs(const Json& job, SamplingParams& sampling) {
  const Json* const logprobs = FindField(job, "logprobs");
  const Json* const top = FindField(job, "top_logprobs");
  const bool wanted = logprobs != nullptr && *logprobs == Json(true);
  if (top != nullptr && !wanted) {
    return absl::InvalidArgumentError("\"top_logprobs\" needs \"logprobs\": true");
  }
  if (top != nullptr) return SetInteger("top_logprobs", *top, sampling.logprobs);
  if (wanted) sampling.logprobs = 0;
  if (logprobs == nullptr || logprobs->is_boolean()) return absl::OkStatus();
  return SetInteger("logprobs", *logprobs, sampling.logprobs);
}

absl::Status SetStop(const std::string&, const Json& value, Job& job) {
  std::vector<std::string>& stop = job.sampling.stop;
  stop.clear();
  if (value.is_string()) {
    stop.push_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType("stop", "a string or an array of strings");
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, ToText(absl::StrCat("stop[", i, "]"), value[i]));
    stop.push_back(std::move(text));
  }
  return absl::OkStatus();
}

template <std::string Job::*kMember>
absl::Status SetText(const std::string& field, const Json& value, Job& job) {
  ASSIGN_OR_RETURN(job.*kMember, ToText(field, value));
  return absl::OkStatus();
}

template <int32_t Job::*kMember>
absl::Status SetNumberOf(const std::string& field, const Json& value, Job& job) {
  return SetInteger(field, value, job.*kMember);
}

template <auto kMember>
absl::Status SetSamplingNumber(const std::string& field, const Json& value, Job& job) {
  if constexpr (std::is_same_v<decltype(kMember), float SamplingParams::*>) {
    return SetNumber(field, value, job.sampling.*kMember);
  } else {
    return SetInteger(field, value, job.sampling.*kMember);
  }
}

struct JobField {
  const char* name;
  absl::Status (*set)(const std::string& field, const Json& value, Job& job);
};

using S = SamplingParams;
constexpr JobField kFields[] = {
    {"id", SetText<&Job::id>},
    {"prompt",
     [](const std::string& field, const Json& value, Job& job) -> absl::Status {
       ASSIGN_OR_RETURN(job.prompt, ToText(field, value));
       return absl::OkStatus();
     }},
    {"prompt_token_ids",
     [](const std::string& field, const Json& value, Job& job) -> absl::Status {
       ASSIGN_OR_RETURN(job.prompt_token_ids, ToTokenIds(field, value));
       return absl::OkStatus();
     }},
    {"messages",
     [](const std::string&, const Json& value, Job& job) -> absl::Status {
       ASSIGN_OR_RETURN(job.messages, ToMessages(value));
       return absl::OkStatus();
     }},
    {"tenant", SetText<&Job::tenant>},
    {"cache_salt", SetText<&Job::cache_salt>},
    {"session_id", SetText<&Job::session_id>},
    {"priority", SetNumberOf<&Job::priority>},
    {"n", SetNumberOf<&Job::n>},
    {"temperature", SetSamplingNumber<&S::temperature>},
    {"top_p", SetSamplingNumber<&S::top_p>},
    {"min_p", SetSamplingNumber<&S::min_p>},
    {"repetition_penalty", SetSamplingNumber<&S::repetition_penalty>},
    {"presence_penalty", SetSamplingNumber<&S::presence_penalty>},
    {"frequency_penalty", SetSamplingNumber<&S::frequency_penalty>},
    {"top_k", SetSamplingNumber<&S::top_k>},
    {"min_tokens", SetSamplingNumber<&S::min_tokens>},
    {"max_tokens", SetMaxTokens},
    {"max_completion_tokens", SetMaxTokens},
    {"logprobs", ReadTogether},
    {"top_logprobs", ReadTogether},
    {"seed", SetSamplingNumber<&S::seed>},
    {"logit_bias", SetLogitBias},
    {"stop", SetStop},
    {"stop_token_ids",
     [](const std::string& field, const Json& value, Job& job) -> absl::Status {
       ASSIGN_OR_RETURN(job.sampling.stop_token_ids, ToTokenIds(field, value));
       return absl::OkStatus();
     }},
    {"ignore_eos",
     [](const std::string& field, const Json& value, Job& job) -> absl::Status {
       if (!value.is_boolean()) return WrongType(field, "true or false");
       job.sampling.ignore_eos = value.get<bool>();
       return absl::OkStatus();
     }},
};

// Null is as good as absent.
absl::Status SetField(const std::string& field, const Json& value, Job& job) {
  const auto* const found =
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const JobField& known) { return known.name == field; });
  if (found == std::end(kFields)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" is not a field of a job"));
  }
  return value.is_null() ? absl::OkStatus() : found->set(field, value, job);
}

// What can be told without the model; a router or an engine, which know it, check again.
absl::Status CheckJob(const Job& job) {
  RequestFields fields = {.request_id = {},
                          .session_id = job.session_id,
                          .tenant = job.tenant,
                          .cache_salt = job.cache_salt,
                          .priority = job.priority,
                          .n = job.n,
                          .sampling = job.sampling,
                          .prompt = {},
                          .prompt_token_ids = std::nullopt};
  if (job.prompt) fields.prompt = *job.prompt;
  if (job.messages) fields.messages = static_cast<int64_t>(job.messages->size());
  if (job.prompt_token_ids) fields.prompt_token_ids = *job.prompt_token_ids;
  return CheckRequest(fields, RequestLimits());
}

absl::StatusOr<Job> ParseJobObject(const Json& json, int64_t line_number) {
  if (!json.is_object()) return absl::InvalidArgumentError("a job must be a JSON object");
  Job job;
  job.id = absl::StrCat(line_number);
  for (const auto& [field, value] : json.items()) RETURN_IF_ERROR(SetField(field, value, job));
  RETURN_IF_ERROR(SetLogprobs(json, job.sampling));
  const int inputs = (job.prompt ? 1 : 0) + (job.prompt_token_ids ? 1 : 0) + (job.messages ? 1 : 0);
  if (inputs != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job has one of \"prompt\", \"prompt_token_ids\" and \"messages\"; this one has ",
        inputs));
  }
  RETURN_IF_ERROR(CheckJob(job));
  return job;
}

nlohmann::ordered_json LogprobsToJson(const std::vector<JobTokenDetail>& details) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const JobTokenDetail& detail : details) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const TokenLogprob& alternative : detail.top) {
      top.push_back({{"token_id", alternative.token}, {"logprob", alternative.logprob}});
    }
    out.push_back({{"logprob", detail.logprob}, {"top", std::move(top)}});
  }
  return out;
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// What a line may cost in memory is a few times its length: values past the limits are read over,
// not kept.
absl::StatusOr<Json> ParseLine(std::string_view line) {
  if (line.size() > kMaxJobLineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", line.size(), " bytes; at most ", kMaxJobLineBytes));
  }
  size_t values = 0;
  bool too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxJobDepth;
    return depth <= kMaxJobDepth && ++values <= kMaxJobValues;
  };
  Json json = Json::parse(line, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is nested more than ", kMaxJobDepth, " deep"));
  }
  if (values > kMaxJobValues) {
    return absl::InvalidArgumentError(
        absl::StrCat("it holds more than ", kMaxJobValues, " values"));
  }
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return json;
}

}  // namespace

absl::StatusOr<Job> ParseJob(std::string_view line, int64_t line_number) {
  const absl::StatusOr<Json> json = ParseLine(line);
  absl::StatusOr<Job> job = json.ok() ? ParseJobObject(*json, line_number) : json.status();
  if (job.ok()) return job;
  return absl::Status(job.status().code(),
                      absl::StrCat("line ", line_number, ": ", job.status().message()));
}

std::string JobId(std::string_view line, int64_t line_number) {
  const absl::StatusOr<Json> json = ParseLine(line);
  const bool named =
      json.ok() && json->is_object() && json->contains("id") && (*json)["id"].is_string();
  return named ? (*json)["id"].get<std::string>() : absl::StrCat(line_number);
}

std::string ResultLine(const JobResult& result) {
  nlohmann::ordered_json json;
  json["id"] = result.id;
  if (result.choice) json["choice"] = *result.choice;
  json["prompt_token_ids"] = result.prompt_token_ids;
  json["token_ids"] = result.token_ids;
  json["text"] = result.text;
  json["finish_reason"] = result.finish_reason;
  json["usage"] = {{"prompt_tokens", result.prompt_tokens},
                   {"cached_tokens", result.cached_tokens},
                   {"completion_tokens", result.completion_tokens}};
  nlohmann::ordered_json ledger = nlohmann::ordered_json::object();
  for (const auto& [name, figure] : result.ledger) ledger[name] = figure;
  json["ledger"] = std::move(ledger);
  if (!result.prefill_worker.empty()) json["prefill_worker"] = result.prefill_worker;
  if (!result.pull_source.empty()) json["pull_source"] = result.pull_source;
  if (!result.decode_worker.empty()) json["decode_worker"] = result.decode_worker;
  if (!result.logprobs.empty()) json["logprobs"] = LogprobsToJson(result.logprobs);
  if (result.logits_hash != 0)
    json["logits_hash"] = absl::StrCat(absl::Hex(result.logits_hash, absl::kZeroPad16));
  return Dump(json);
}

std::string ErrorLine(const std::string& id, const absl::Status& status) {
  nlohmann::ordered_json json;
  json["id"] = id;
  json["error"] = {{"code", absl::StatusCodeToString(status.code())},
                   {"message", std::string(status.message())}};
  return Dump(json);
}

}  // namespace baton
