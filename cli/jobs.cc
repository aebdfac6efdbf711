#include "cli/jobs.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/nearest_name.h"
#include "common/status_macros.h"
#include "requests/json_values.h"
#include "requests/request_fields.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// A batch line's body is an object in an object, so its content parts are nested five deep.
constexpr int kMaxJobDepth = 8;
// Enough for the most token ids and all other values of a reasonable job.
constexpr size_t kMaxJobValues = kMaxJobTokenIds + (1 << 16);

constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr char kCompletionUrl[] = "/v1/completions";

absl::StatusOr<Json> ParseLine(std::string_view line, int64_t number) {
  return ParseJson(
      line, number,
      {.max_bytes = kMaxJobLineBytes, .max_depth = kMaxJobDepth, .max_values = kMaxJobValues});
}

bool IsBatchLine(const Json& json) {
  for (const char* name : {"custom_id", "method", "url", "body"}) {
    if (json.contains(name)) return true;
  }
  return false;
}

// An unknown url counts as a chat, so that the line has a label.
JobForm FormOf(const Json& json) {
  if (!IsBatchLine(json)) return JobForm::kBaton;
  const Json* const url = FindField(json, "url");
  return url != nullptr && *url == kCompletionUrl ? JobForm::kCompletionBatch : JobForm::kChatBatch;
}

RequestStyle StyleOf(JobForm form) {
  switch (form) {
    case JobForm::kBaton:
      return RequestStyle::kJob;
    case JobForm::kChatBatch:
      return RequestStyle::kChat;
    case JobForm::kCompletionBatch:
      return RequestStyle::kCompletion;
  }
  return RequestStyle::kJob;
}

absl::Status ReadField(const JsonPlace& place, const std::string& name, const Json& value,
                       Job& job) {
  const bool batch = job.form != JobForm::kBaton;
  if (!batch && name == "id") return absl::OkStatus();  // ReadLabel has read it
  if (batch && name == "model") {
    if (value.is_null()) return absl::OkStatus();
    ASSIGN_OR_RETURN(job.model, ToText(place, value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool known, ReadRequestField(place, name, value, StyleOf(job.form),
                                                      /*ignored=*/nullptr, job));
  if (known) return absl::OkStatus();
  if (batch) {  // whose forms have fewer fields
    return place.FaultAtKey(absl::StrCat("\"", place.Name(), "\" is not a field of a job"));
  }
  std::vector<std::string> names = {"id"};
  ForEachRequestField(
      [&names](const char* known_name, const char*) { names.emplace_back(known_name); });
  const std::string nearest = NearestName(name, names);
  return place.FaultAtKey(absl::StrCat("\"", place.Name(), "\" is not a field of a job",
                                       nearest.empty() ? "" : "; did you mean ", nearest,
                                       nearest.empty() ? "" : "?"));
}

absl::Status ReadJobFields(const JsonPlace& place, const Json& object, Job& job) {
  for (const auto& [name, value] : object.items()) {
    RETURN_IF_ERROR(ReadField(place.Member(name), name, value, job));
  }
  return FinishRequest(place, object, StyleOf(job.form), job);
}

absl::StatusOr<JobLabel> ReadLabel(const JsonPlace& place, const Json& json, int64_t line_number) {
  JobLabel label = {.id = absl::StrCat(line_number), .form = FormOf(json), .line = line_number};
  const char* const name = label.form == JobForm::kBaton ? "id" : "custom_id";
  const Json* const id = FindField(json, name);
  if (id != nullptr) RETURN_IF_ERROR(ReadJobId(place.Member(name), *id, label));
  return label;
}

absl::Status ReadBatchLine(const JsonPlace& place, const Json& json, Job& job) {
  for (const auto& [name, value] : json.items()) {
    const JsonPlace member = place.Member(name);
    if (name == "custom_id" || name == "body") continue;
    if (name == "method") {
      if (value != "POST") return member.FaultOf("must be \"POST\"");
    } else if (name == "url") {
      if (value == kChatUrl || value == kCompletionUrl) continue;
      return member.FaultOf(absl::StrCat("must be \"", kChatUrl, "\" or \"", kCompletionUrl, "\""));
    } else {
      return member.FaultAtKey(absl::StrCat("\"", member.Name(),
                                            "\" is not a field of a batch line; custom_id, "
                                            "method, url and body are"));
    }
  }
  for (const char* name : {"method", "url", "body"}) {
    if (FindField(json, name) != nullptr) continue;
    return place.Fault(absl::StrCat("a batch line must have \"", name, "\""));
  }
  const JsonPlace body = place.Member("body");
  if (!json["body"].is_object()) return body.FaultOf("must be an object");
  return ReadJobFields(body, json["body"], job);
}

}  // namespace

absl::Status ReadJobId(const JsonPlace& place, const Json& value, JobLabel& label) {
  if (value.is_string()) {
    label.id = value.get<std::string>();
  } else if (value.is_number_integer()) {
    label.id = value.dump();
    label.id_is_number = true;
  } else {
    return place.FaultOf("must be a string or a whole number");
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> ParseJob(std::string_view line, int64_t line_number, const Job& defaults) {
  ASSIGN_OR_RETURN(const Json json, ParseLine(line, line_number));
  const JsonPlace place(line, line_number);
  if (!json.is_object()) return place.Fault("a job must be a JSON object");
  Job job;
  job.n = defaults.n;
  job.sampling = defaults.sampling;
  job.priority = defaults.priority;
  job.chunk_options = defaults.chunk_options;
  job.chunk_separator = defaults.chunk_separator;
  ASSIGN_OR_RETURN(static_cast<JobLabel&>(job), ReadLabel(place, json, line_number));
  RETURN_IF_ERROR(job.form == JobForm::kBaton ? ReadJobFields(place, json, job)
                                              : ReadBatchLine(place, json, job));
  return job;
}

JobLabel LabelOfLine(std::string_view line, int64_t line_number) {
  JobLabel label = {.id = absl::StrCat(line_number), .line = line_number};
  const absl::StatusOr<Json> json = ParseLine(line, line_number);
  if (!json.ok() || !json->is_object()) return label;
  label.form = FormOf(*json);
  return ReadLabel(JsonPlace(line, line_number), *json, line_number).value_or(label);
}

}  // namespace baton
