#include "openai/body_fields.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/choices.h"
#include "common/printable_text.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "requests/json_values.h"

namespace baton {
namespace {

using Json = nlohmann::json;

struct Body {
  OpenAiEndpoint endpoint;
  IgnoredFields& ignored;
  BodyFields& fields;
};

template <bool BodyFields::*kMember>
absl::Status SetFlag(const JsonPlace& place, const Json& value, Body& body) {
  ASSIGN_OR_RETURN(body.fields.*kMember, ToBool(place, value));
  return absl::OkStatus();
}

absl::Status SetModel(const JsonPlace& place, const Json& value, Body& body) {
  ASSIGN_OR_RETURN(body.fields.model, ToText(place, value));
  return absl::OkStatus();
}

absl::Status SetPromptCacheKey(const JsonPlace& place, const Json& value, Body& body) {
  ASSIGN_OR_RETURN(std::string key, ToText(place, value));
  if (static_cast<int64_t>(key.size()) > kMaxRequestIdBytes) {
    return place.FaultOf(
        absl::StrCat("has ", key.size(), " bytes; at most ", kMaxRequestIdBytes, " are allowed"));
  }
  body.fields.prompt_cache_key = std::move(key);
  return absl::OkStatus();
}

absl::Status SetBestOf(const JsonPlace& place, const Json& value, Body& body) {
  ASSIGN_OR_RETURN(body.fields.best_of, ToInteger<int32_t>(place, value, 1, kMaxChoices));
  return absl::OkStatus();
}

absl::Status SetEcho(const JsonPlace& place, const Json& value, Body& body) {
  ASSIGN_OR_RETURN(body.fields.echo, ToBool(place, value));
  if (!body.fields.echo || body.endpoint == OpenAiEndpoint::kCompletions) return absl::OkStatus();
  return place.FaultOf("is not supported in a conversation; leave it out");
}

absl::Status SetStreamOptions(const JsonPlace& place, const Json& value, Body& body) {
  if (!value.is_object()) return place.FaultOf("must be an object");
  for (const auto& [name, option] : value.items()) {
    const JsonPlace option_place = place.Member(name);
    if (option.is_null() || name == "include_obfuscation") continue;
    if (name == "include_usage") {
      ASSIGN_OR_RETURN(body.fields.include_usage, ToBool(option_place, option));
    } else if (name == "continuous_usage_stats") {
      ASSIGN_OR_RETURN(body.fields.continuous_usage_stats, ToBool(option_place, option));
    } else {
      body.ignored.Add(option_place);
    }
  }
  return absl::OkStatus();
}

absl::Status Nothing(const JsonPlace&, const Json&, Body&) { return absl::OkStatus(); }

// Refuses every value but an empty one, which asks for nothing: "", [], {}, false.
absl::Status RefuseUnlessEmpty(const JsonPlace& place, const Json& value, Body&) {
  const bool empty = value.is_string()       ? value.get_ref<const std::string&>().empty()
                     : value.is_structured() ? value.empty()
                                             : value == Json(false);
  return empty ? absl::OkStatus() : place.FaultOf("is not supported; leave it out");
}

// Tools are refused, so these values change nothing.
absl::Status RefuseUnlessOptional(const JsonPlace& place, const Json& value, Body&) {
  if (value == "none" || value == "auto") return absl::OkStatus();
  return place.FaultOf("is not supported; only \"none\" and \"auto\" are");
}

absl::Status RefuseUnlessText(const JsonPlace& place, const Json& value, Body&) {
  if (!value.is_object()) return place.FaultOf("must be an object");
  const Json* const type = FindField(value, "type");
  if (type == nullptr) return place.FaultOf("has no \"type\"; it must be \"text\"");
  const JsonPlace type_place = place.Member("type");
  ASSIGN_OR_RETURN(const std::string name, ToText(type_place, *type));
  if (name == "text") return absl::OkStatus();
  return type_place.FaultOf(
      absl::StrCat("is \"", Printable(name, 64), "\"; only \"text\" is supported"));
}

absl::Status RefuseUnlessTextOnly(const JsonPlace& place, const Json& value, Body&) {
  if (value == Json::array({"text"})) return absl::OkStatus();
  return place.FaultOf("is not supported; only [\"text\"] is");
}

struct BodyField {
  const char* name;
  BodyFieldKind kind;
  absl::Status (*read)(const JsonPlace& place, const Json& value, Body& body);
};

constexpr BodyFieldKind kHonoured = BodyFieldKind::kHonoured;
constexpr BodyFieldKind kWithoutEffect = BodyFieldKind::kWithoutEffect;
constexpr BodyFieldKind kRefused = BodyFieldKind::kRefused;
using F = BodyFields;

constexpr BodyField kBodyFields[] = {
    {"model", kHonoured, SetModel},
    {"stream", kHonoured, SetFlag<&F::stream>},
    {"stream_options", kHonoured, SetStreamOptions},
    {"echo", kHonoured, SetEcho},
    {"prompt_cache_key", kHonoured, SetPromptCacheKey},
    {"return_token_ids", kHonoured, SetFlag<&F::return_token_ids>},
    {"return_ledger", kHonoured, SetFlag<&F::return_ledger>},
    {"user", kWithoutEffect, Nothing},
    {"safety_identifier", kWithoutEffect, Nothing},
    {"metadata", kWithoutEffect, Nothing},
    {"store", kWithoutEffect, Nothing},
    {"service_tier", kWithoutEffect, Nothing},
    {"parallel_tool_calls", kWithoutEffect, Nothing},
    {"prediction", kWithoutEffect, Nothing},
    {"best_of", kRefused, SetBestOf},
    {"suffix", kRefused, RefuseUnlessEmpty},
    {"tools", kRefused, RefuseUnlessEmpty},
    {"tool_choice", kRefused, RefuseUnlessOptional},
    {"functions", kRefused, RefuseUnlessEmpty},
    {"function_call", kRefused, RefuseUnlessOptional},
    {"response_format", kRefused, RefuseUnlessText},
    {"modalities", kRefused, RefuseUnlessTextOnly},
    {"audio", kRefused, RefuseUnlessEmpty},
    {"web_search_options", kRefused, RefuseUnlessEmpty},
    // Names of other servers.
    {"use_beam_search", kRefused, RefuseUnlessEmpty},
    {"structured_outputs", kRefused, RefuseUnlessEmpty},
    {"guided_json", kRefused, RefuseUnlessEmpty},
    {"guided_regex", kRefused, RefuseUnlessEmpty},
    {"guided_choice", kRefused, RefuseUnlessEmpty},
    {"guided_grammar", kRefused, RefuseUnlessEmpty},
    {"grammar", kRefused, RefuseUnlessEmpty},
    {"json_schema", kRefused, RefuseUnlessEmpty},
};

}  // namespace

absl::StatusOr<bool> ReadBodyField(const JsonPlace& place, const std::string& name,
                                   const Json& value, OpenAiEndpoint endpoint,
                                   IgnoredFields& ignored, BodyFields& fields) {
  const auto* const field =
      std::find_if(std::begin(kBodyFields), std::end(kBodyFields),
                   [&](const BodyField& known) { return known.name == name; });
  if (field == std::end(kBodyFields)) return false;
  Body body = {.endpoint = endpoint, .ignored = ignored, .fields = fields};
  if (!value.is_null()) RETURN_IF_ERROR(field->read(place, value, body));
  return true;
}

void ForEachBodyField(absl::FunctionRef<void(const char* name, BodyFieldKind kind)> visit) {
  for (const BodyField& field : kBodyFields) visit(field.name, field.kind);
}

}  // namespace baton
