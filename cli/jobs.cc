#include "cli/jobs.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {
namespace {

using Json = nlohmann::json;

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

absl::Status SetLogitBias(const Json& value, SamplingParams& sampling) {
  if (!value.is_object()) return WrongType("logit_bias", "an object of token id to number");
  for (const auto& [key, bias] : value.items()) {
    TokenId token = 0;
    if (!absl::SimpleAtoi(key, &token)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"logit_bias\": \"", key, "\" is not a token id"));
    }
    RETURN_IF_ERROR(
        SetNumber(absl::StrCat("logit_bias[", key, "]"), bias, sampling.logit_bias[token]));
  }
  return absl::OkStatus();
}

absl::Status SetStop(const Json& value, SamplingParams& sampling) {
  sampling.stop.clear();
  if (value.is_string()) {
    sampling.stop.push_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType("stop", "a string or an array of strings");
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, ToText(absl::StrCat("stop[", i, "]"), value[i]));
    sampling.stop.push_back(std::move(text));
  }
  return absl::OkStatus();
}

// NotFound when there is no sampling field of that name.
absl::Status SetSampling(const std::string& field, const Json& value, SamplingParams& sampling) {
  if (field == "temperature") return SetNumber(field, value, sampling.temperature);
  if (field == "top_p") return SetNumber(field, value, sampling.top_p);
  if (field == "min_p") return SetNumber(field, value, sampling.min_p);
  if (field == "repetition_penalty") return SetNumber(field, value, sampling.repetition_penalty);
  if (field == "presence_penalty") return SetNumber(field, value, sampling.presence_penalty);
  if (field == "frequency_penalty") return SetNumber(field, value, sampling.frequency_penalty);
  if (field == "top_k") return SetInteger(field, value, sampling.top_k);
  if (field == "min_tokens") return SetInteger(field, value, sampling.min_tokens);
  if (field == "max_tokens") return SetInteger(field, value, sampling.max_tokens);
  if (field == "logprobs") return SetInteger(field, value, sampling.logprobs);
  if (field == "seed") return SetInteger(field, value, sampling.seed);
  if (field == "logit_bias") return SetLogitBias(value, sampling);
  if (field == "stop") return SetStop(value, sampling);
  if (field == "stop_token_ids") {
    ASSIGN_OR_RETURN(sampling.stop_token_ids, ToTokenIds(field, value));
    return absl::OkStatus();
  }
  if (field == "ignore_eos") {
    if (!value.is_boolean()) return WrongType(field, "true or false");
    sampling.ignore_eos = value.get<bool>();
    return absl::OkStatus();
  }
  return absl::NotFoundError("");
}

absl::Status SetField(const std::string& field, const Json& value, Job& job) {
  if (field == "id") {
    ASSIGN_OR_RETURN(job.id, ToText(field, value));
    return absl::OkStatus();
  }
  if (field == "prompt") {
    ASSIGN_OR_RETURN(job.prompt, ToText(field, value));
    return absl::OkStatus();
  }
  if (field == "tenant") {
    ASSIGN_OR_RETURN(job.tenant, ToText(field, value));
    return absl::OkStatus();
  }
  if (field == "cache_salt") {
    ASSIGN_OR_RETURN(job.cache_salt, ToText(field, value));
    return absl::OkStatus();
  }
  if (field == "priority") return SetInteger(field, value, job.priority);
  if (field == "prompt_token_ids") {
    ASSIGN_OR_RETURN(job.prompt_token_ids, ToTokenIds(field, value));
    return absl::OkStatus();
  }
  if (field == "messages") {
    ASSIGN_OR_RETURN(job.messages, ToMessages(value));
    return absl::OkStatus();
  }
  const absl::Status status = SetSampling(field, value, job.sampling);
  if (absl::IsNotFound(status)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" is not a field of a job"));
  }
  return status;
}

absl::StatusOr<Job> ParseJobObject(const Json& json, int64_t line_number) {
  if (!json.is_object()) return absl::InvalidArgumentError("a job must be a JSON object");
  Job job;
  job.id = absl::StrCat(line_number);
  for (const auto& [field, value] : json.items()) RETURN_IF_ERROR(SetField(field, value, job));
  const int inputs = (job.prompt ? 1 : 0) + (job.prompt_token_ids ? 1 : 0) + (job.messages ? 1 : 0);
  if (inputs != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job has one of \"prompt\", \"prompt_token_ids\" and \"messages\"; this one has ",
        inputs));
  }
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

}  // namespace

absl::StatusOr<Job> ParseJob(std::string_view line, int64_t line_number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  absl::StatusOr<Job> job = json.is_discarded() ? absl::InvalidArgumentError("not valid JSON")
                                                : ParseJobObject(json, line_number);
  if (job.ok()) return job;
  return absl::Status(job.status().code(),
                      absl::StrCat("line ", line_number, ": ", job.status().message()));
}

std::string JobId(std::string_view line, int64_t line_number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool named = json.is_object() && json.contains("id") && json["id"].is_string();
  return named ? json["id"].get<std::string>() : absl::StrCat(line_number);
}

std::string ResultLine(const JobResult& result) {
  nlohmann::ordered_json json;
  json["id"] = result.id;
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
