#include "requests/request_fields.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/choices.h"
#include "common/printable_text.h"
#include "common/request_bounds.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "requests/json_values.h"
#include "requests/message_fields.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

struct Reading {
  RequestStyle style;
  IgnoredFields* ignored;
  ClientRequest& request;
};

absl::Status SetMessages(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.messages, ReadMessages(place, value, reading.ignored));
  return absl::OkStatus();
}

// OpenAI's completions also accept token ids as "prompt".
absl::Status SetPrompt(const JsonPlace& place, const Json& value, Reading& reading) {
  if (reading.style != RequestStyle::kJob && value.is_array()) {
    ASSIGN_OR_RETURN(reading.request.prompt_token_ids, ToTokenIds(place, value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(reading.request.prompt, ToText(place, value));
  return absl::OkStatus();
}

absl::Status SetPromptTokenIds(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.prompt_token_ids, ToTokenIds(place, value));
  return absl::OkStatus();
}

template <PromptPart ChunkedText::*kMember>
absl::Status SetPart(const JsonPlace& place, const Json& value, Reading& reading) {
  if (!reading.request.parts) reading.request.parts.emplace();
  ASSIGN_OR_RETURN((*reading.request.parts).*kMember, ToPromptPart(place, value));
  return absl::OkStatus();
}

absl::Status SetChunks(const JsonPlace& place, const Json& value, Reading& reading) {
  if (!reading.request.parts) reading.request.parts.emplace();
  ASSIGN_OR_RETURN(reading.request.parts->chunks, ToChunks(place, value));
  return absl::OkStatus();
}

// Sets one of the options. `kParse` reads its name.
template <auto kMember, auto kParse>
absl::Status SetChunkOption(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(const std::string name, ToText(place, value));
  auto option = kParse(name);
  if (!option.ok()) return place.Fault(std::string(option.status().message()));
  reading.request.chunk_options.*kMember = *option;
  return absl::OkStatus();
}

absl::Status SetChunkSeparator(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.chunk_separator, ToText(place, value));
  return absl::OkStatus();
}

absl::Status SetNumber(const JsonPlace& place, const Json& value, float& out) {
  if (!value.is_number()) return place.FaultOf("must be a number");
  out = value.get<float>();
  return absl::OkStatus();
}

// `least` and `most`: for the fault of a number that `out` cannot hold; CheckRequest checks the
// others.
template <typename Target>
absl::Status SetInteger(const JsonPlace& place, const Json& value, int32_t least, int32_t most,
                        Target& out) {
  ASSIGN_OR_RETURN(out, ToInteger<int32_t>(place, value, least, most));
  return absl::OkStatus();
}

absl::Status SetLogitBias(const JsonPlace& place, const Json& value, Reading& reading) {
  if (!value.is_object()) return place.FaultOf("must be an object of token id to number");
  reading.request.sampling.logit_bias.clear();
  for (const auto& [key, bias] : value.items()) {
    const JsonPlace bias_place = place.Member(key);
    TokenId token = 0;
    if (!absl::SimpleAtoi(key, &token)) {
      return bias_place.FaultAtKey(
          absl::StrCat("\"logit_bias\": \"", Printable(key, 64), "\" is not a token id"));
    }
    RETURN_IF_ERROR(SetNumber(bias_place, bias, reading.request.sampling.logit_bias[token]));
  }
  return absl::OkStatus();
}

absl::Status SetStop(const JsonPlace& place, const Json& value, Reading& reading) {
  std::vector<std::string>& stop = reading.request.sampling.stop;
  stop.clear();
  if (value.is_string()) {
    stop.push_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return place.FaultOf("must be a string or an array of strings");
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, ToText(place.Element(i), value[i]));
    stop.push_back(std::move(text));
  }
  return absl::OkStatus();
}

absl::Status SetStopTokenIds(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.sampling.stop_token_ids, ToTokenIds(place, value));
  return absl::OkStatus();
}

absl::Status SetIgnoreEos(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.sampling.ignore_eos, ToBool(place, value));
  return absl::OkStatus();
}

template <std::string ClientRequest::*kMember>
absl::Status SetText(const JsonPlace& place, const Json& value, Reading& reading) {
  ASSIGN_OR_RETURN(reading.request.*kMember, ToText(place, value));
  return absl::OkStatus();
}

template <int32_t ClientRequest::*kMember, int32_t kLeast, int32_t kMost>
absl::Status SetNumberOf(const JsonPlace& place, const Json& value, Reading& reading) {
  return SetInteger(place, value, kLeast, kMost, reading.request.*kMember);
}

template <float SamplingParams::*kMember>
absl::Status SetSamplingNumber(const JsonPlace& place, const Json& value, Reading& reading) {
  return SetNumber(place, value, reading.request.sampling.*kMember);
}

template <int32_t SamplingParams::*kMember>
absl::Status SetSamplingCount(const JsonPlace& place, const Json& value, Reading& reading) {
  return SetInteger(place, value, 0, kNoLimit, reading.request.sampling.*kMember);
}

// OpenAI's clients may send a negative seed. It counts as the number with the same 64 bits.
absl::Status SetSeed(const JsonPlace& place, const Json& value, Reading& reading) {
  const std::optional<absl::int128> seed = WholeNumber(value);
  if (!seed) return place.FaultOf("must be a whole number");
  if (*seed < absl::int128(std::numeric_limits<int64_t>::min()) ||
      *seed > absl::int128(std::numeric_limits<uint64_t>::max())) {
    return RangeFault(place, value, "[-2^63, 2^64-1]");
  }
  reading.request.sampling.seed = static_cast<uint64_t>(*seed);
  return absl::OkStatus();
}

// For fields that depend on each other. ReadMaxTokens and ReadLogprobs read them.
absl::Status ReadTogether(const JsonPlace&, const Json&, Reading&) { return absl::OkStatus(); }

// Reads one limit, which has two names.
absl::Status ReadMaxTokens(const JsonPlace& place, const Json& object, SamplingParams& sampling) {
  const Json* const one = FindField(object, "max_tokens");
  const Json* const other = FindField(object, "max_completion_tokens");
  if (one != nullptr) {
    RETURN_IF_ERROR(SetInteger(place.Member("max_tokens"), *one, 1, kNoLimit, sampling.max_tokens));
  }
  if (other == nullptr) return absl::OkStatus();
  const JsonPlace other_place = place.Member("max_completion_tokens");
  ASSIGN_OR_RETURN(const int32_t limit, ToInteger<int32_t>(other_place, *other, 1, kNoLimit));
  if (one != nullptr && limit != *sampling.max_tokens) {
    return other_place.Fault(
        absl::StrCat("\"max_tokens\" and \"max_completion_tokens\" are one limit, but are ",
                     *sampling.max_tokens, " and ", limit));
  }
  sampling.max_tokens = limit;
  return absl::OkStatus();
}

// "logprobs" is a number of alternatives, or true and "top_logprobs" is that number.
absl::Status ReadLogprobs(const JsonPlace& place, const Json& object, SamplingParams& sampling) {
  const Json* const logprobs = FindField(object, "logprobs");
  const Json* const top = FindField(object, "top_logprobs");
  const bool wanted = logprobs != nullptr && *logprobs == Json(true);
  const JsonPlace top_place = place.Member("top_logprobs");
  if (top != nullptr && !wanted) {
    return top_place.Fault("\"top_logprobs\" needs \"logprobs\": true");
  }
  if (top != nullptr) return SetInteger(top_place, *top, 0, kMaxTopLogprobs, sampling.logprobs);
  if (logprobs == nullptr) return absl::OkStatus();
  if (logprobs->is_boolean()) {
    sampling.logprobs = wanted ? std::optional<int32_t>(0) : std::nullopt;
    return absl::OkStatus();
  }
  const JsonPlace logprobs_place = place.Member("logprobs");
  if (!logprobs->is_number()) return logprobs_place.FaultOf("must be a whole number or a boolean");
  return SetInteger(logprobs_place, *logprobs, 0, kMaxTopLogprobs, sampling.logprobs);
}

struct RequestField {
  const char* name;
  const char* help;
  absl::Status (*set)(const JsonPlace& place, const Json& value, Reading& reading);
};

// The help texts name these limits.
static_assert(kMaxPromptTokenIds == 1048576);
static_assert(kMaxChoices == 16 && kMinPriority == -100 && kMaxPriority == 100);
static_assert(kMaxTemperature == 100 && kMaxPenalty == 2 && kMaxRepetitionPenalty == 100);
static_assert(kMaxLogitBias == 100 && kMaxLogitBiases == 1024 && kMaxTopLogprobs == 20);
static_assert(kMaxStopStrings == 16 && kMaxStopStringBytes == 256 && kMaxStopTokens == 64);
static_assert(kMaxTenantBytes == 256 && kMaxRequestIdBytes == 128);
static_assert(kMaxPromptChunks == 500 && kMaxChunkSeparatorBytes == 256);

using S = SamplingParams;
using C = ChunkOptions;
constexpr RequestField kFields[] = {
    {"prompt", "string, continued without a template", SetPrompt},
    {"prompt_token_ids", "array of token ids, at most 1048576", SetPromptTokenIds},
    {"messages",
     "array of {\"role\": string, \"content\": string}, for the chat template;\n"
     "\"content\" may be an array of {\"type\": \"text\", \"text\": string}, which are joined\n"
     "with line breaks; parts of other types are refused; one message may have\n"
     "\"chunks\", an array as below, which come before its content",
     SetMessages},
    {"question",
     "string or array of token ids: the last part of a prompt in parts; the prompt\n"
     "is continued without a template; each part is tokenised alone",
     SetPart<&ChunkedText::question>},
    {"chunks",
     "with question: array of at most 500 parts, each a string or an array of token\n"
     "ids; other requests reuse their KV in any order, beside any other chunks",
     SetChunks},
    {"system", "with question: string or array of token ids; default: empty",
     SetPart<&ChunkedText::system>},
    {"chunk_positions",
     "\"overlap\" (default): all chunks begin behind the system part; or \"sequential\":\n"
     "each part begins behind the part before it",
     SetChunkOption<&C::positions, ParseChunkPositions>},
    {"chunk_scope",
     "\"system\" (default): a chunk attends to the system part and itself; or\n"
     "\"alone\": only to itself",
     SetChunkOption<&C::scope, ParseChunkScope>},
    {"chunk_repair",
     "\"none\" (default), \"first:K\" or \"share:R\": chunk tokens that are computed\n"
     "again with attention to all parts before them",
     SetChunkOption<&C::repair, ParseChunkRepair>},
    {"chunk_separator",
     "string, at most 256 bytes: splits prompt, or the first user message with it,\n"
     "into system, chunks and question; empty: off",
     SetChunkSeparator},
    {"n", "whole number, 1 to 16: number of answers; default 1",
     SetNumberOf<&ClientRequest::n, 1, kMaxChoices>},
    {"priority", "whole number, -100 to 100; the highest runs first; default 0",
     SetNumberOf<&ClientRequest::priority, kMinPriority, kMaxPriority>},
    {"max_tokens", "whole number, 1 or more; default: the answer may fill the context",
     ReadTogether},
    {"max_completion_tokens", "another name of max_tokens", ReadTogether},
    {"min_tokens", "whole number, 0 to max_tokens; default 0", SetSamplingCount<&S::min_tokens>},
    {"temperature", "number, 0 to 100; 0 is greedy; default 1", SetSamplingNumber<&S::temperature>},
    {"top_k", "whole number, 0 or more; default 0: all tokens", SetSamplingCount<&S::top_k>},
    {"top_p", "number, above 0, at most 1; default 1: all tokens", SetSamplingNumber<&S::top_p>},
    {"min_p", "number, 0 to 1; default 0: all tokens", SetSamplingNumber<&S::min_p>},
    {"repetition_penalty", "number, 0.01 to 100; default 1: none",
     SetSamplingNumber<&S::repetition_penalty>},
    {"presence_penalty", "number, -2 to 2; default 0", SetSamplingNumber<&S::presence_penalty>},
    {"frequency_penalty", "number, -2 to 2; default 0", SetSamplingNumber<&S::frequency_penalty>},
    {"logit_bias", "object of at most 1024 token ids, each with a number, -100 to 100",
     SetLogitBias},
    {"seed",
     "whole number, -2^63 to 2^64-1, in digits above 2^53; default: drawn for each\n"
     "request",
     SetSeed},
    {"stop", "string or array of strings, at most 16 of 1 to 256 bytes", SetStop},
    {"stop_token_ids", "array of token ids, at most 64", SetStopTokenIds},
    {"ignore_eos", "true or false; default false", SetIgnoreEos},
    {"logprobs",
     "whole number, 0 to 20: alternatives for each token; or true or false;\n"
     "default: none",
     ReadTogether},
    {"top_logprobs", "whole number, 0 to 20, with \"logprobs\": true", ReadTogether},
    {"tenant", "string, at most 256 bytes; different tenants share no cached prefix",
     SetText<&ClientRequest::tenant>},
    {"cache_salt", "string, at most 256 bytes; different salts share no cached prefix",
     SetText<&ClientRequest::cache_salt>},
    {"session_id",
     "string, at most 128 bytes; some routing policies send requests with\n"
     "the same id to the same worker",
     SetText<&ClientRequest::session_id>},
};

// Returns a fault at the field with which a check's message begins, under the name that the object
// has for it; or at the object if it does not have this field.
absl::Status AtItsField(const JsonPlace& place, const Json& object, std::string_view message) {
  const std::string name = FieldOfMessage(message);
  const std::string alias = name == "max_tokens" ? "max_completion_tokens"
                            : name == "logprobs" ? "top_logprobs"
                                                 : name;
  for (const std::string& field : {alias, name}) {
    if (FindField(object, field) == nullptr) continue;
    return place.Member(field).Fault(field + std::string(message.substr(name.size())));
  }
  return place.Fault(message);
}

absl::Status CheckInput(const JsonPlace& place, RequestStyle style, const ClientRequest& request) {
  if (style == RequestStyle::kChat && !request.messages) {
    return place.Member("messages").Fault("a body for /v1/chat/completions must have \"messages\"");
  }
  if (style == RequestStyle::kCompletion && request.messages) {
    return place.Member("messages").FaultAtKey("a body for /v1/completions has no \"messages\"");
  }
  const int inputs = InputsOf(request);
  if (inputs == 1) return absl::OkStatus();
  return place.Fault(absl::StrCat(
      style == RequestStyle::kJob ? "a job" : "a body",
      " has one of \"prompt\", \"prompt_token_ids\", \"messages\" and \"question\"; this one has ",
      inputs));
}

// A missing question is a fault of its own: an empty one would be refused only later.
absl::Status CheckPartFields(const JsonPlace& place, const Json& object) {
  if (FindField(object, "question") != nullptr) return absl::OkStatus();
  for (const char* name : {"system", "chunks"}) {
    if (FindField(object, name) == nullptr) continue;
    return place.Member(name).FaultAtKey(absl::StrCat("\"", name, "\" needs \"question\""));
  }
  return absl::OkStatus();
}

const RequestField* FindRequestField(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const RequestField& known) { return known.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

}  // namespace

absl::StatusOr<bool> ReadRequestField(const JsonPlace& place, const std::string& name,
                                      const Json& value, RequestStyle style, IgnoredFields* ignored,
                                      ClientRequest& request) {
  const RequestField* const field = FindRequestField(name);
  if (field == nullptr) return false;
  Reading reading = {.style = style, .ignored = ignored, .request = request};
  if (!value.is_null()) RETURN_IF_ERROR(field->set(place, value, reading));
  return true;
}

absl::Status FinishRequest(const JsonPlace& place, const Json& object, RequestStyle style,
                           ClientRequest& request) {
  RETURN_IF_ERROR(ReadMaxTokens(place, object, request.sampling));
  RETURN_IF_ERROR(ReadLogprobs(place, object, request.sampling));
  RETURN_IF_ERROR(CheckPartFields(place, object));
  RETURN_IF_ERROR(CheckInput(place, style, request));
  const absl::Status checked = CheckRequest(request, RequestLimits());
  return checked.ok() ? checked : AtItsField(place, object, std::string(checked.message()));
}

std::string FieldOfMessage(std::string_view message) {
  const std::string_view name =
      message.substr(0, message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
  return FindRequestField(name) == nullptr ? "" : std::string(name);
}

void ForEachRequestField(absl::FunctionRef<void(const char* name, const char* help)> visit) {
  for (const RequestField& field : kFields) visit(field.name, field.help);
}

}  // namespace baton
