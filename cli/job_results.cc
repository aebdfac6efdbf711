#include "cli/job_results.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/answer_notes.h"
#include "openai/logprobs_output.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Returns the id in the form of the job: a string or a number.
OrderedJson IdOf(const JobLabel& label) {
  if (!label.id_is_number) return label.id;
  OrderedJson number = OrderedJson::parse(label.id, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : OrderedJson(label.id);
}

void AddText(TokenId token, const TokenPieces& pieces, OrderedJson& to) {
  if (const auto piece = pieces.find(token); piece != pieces.end()) to["text"] = piece->second;
}

OrderedJson LogprobsToJson(const JobResult& result, const TokenPieces& pieces) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    const TokenDetail& detail = result.logprobs[i];
    OrderedJson one = {{"logprob", detail.logprob}, {"top", OrderedJson::array()}};
    if (i < result.token_ids.size()) AddText(result.token_ids[i], pieces, one);
    for (const TokenLogprob& alternative : detail.top) {
      OrderedJson top = {{"token_id", alternative.token}, {"logprob", alternative.logprob}};
      AddText(alternative.token, pieces, top);
      one["top"].push_back(std::move(top));
    }
    out.push_back(std::move(one));
  }
  return out;
}

// Returns the log-probabilities in the form that the HTTP edge gives them. If the piece of a token
// is unknown, the token is named by its id, and has no bytes; completions then have no offsets.
OrderedJson BatchLogprobs(OpenAiEndpoint endpoint, const JobResult& result,
                          const TokenPieces& pieces) {
  TokenPieces names = pieces;
  for (const TokenId token : TokensOfLogprobs({result})) {
    names.try_emplace(token, absl::StrCat("token_id:", token));
  }
  const TokenText text = [&](TokenId token) -> std::string_view { return names.at(token); };
  LogprobsOutput output(endpoint, &text);
  const size_t count = std::min(result.logprobs.size(), result.token_ids.size());
  for (size_t i = 0; i < count; ++i) output.Add(result.token_ids[i], result.logprobs[i]);
  OrderedJson out = OrderedJson::parse(output.Take());
  if (names.size() == pieces.size()) return out;
  if (endpoint == OpenAiEndpoint::kCompletions) {
    out.erase("text_offset");
    return out;
  }
  for (size_t i = 0; i < count; ++i) {
    OrderedJson& one = out["content"][i];
    if (!pieces.contains(result.token_ids[i])) one["bytes"] = nullptr;
    const std::vector<TokenLogprob>& top = result.logprobs[i].top;
    for (size_t k = 0; k < top.size(); ++k) {
      if (!pieces.contains(top[k].token)) one["top_logprobs"][k]["bytes"] = nullptr;
    }
  }
  return out;
}

OrderedJson BatchLine(const JobLabel& label, int status_code, OrderedJson body, OrderedJson error) {
  return {{"id", absl::StrCat("batch_req_", label.line)},
          {"custom_id", IdOf(label)},
          {"response",
           {{"status_code", status_code},
            {"request_id", absl::StrCat("req_", label.line)},
            {"body", std::move(body)}}},
          {"error", std::move(error)}};
}

OrderedJson BatchResult(const Job& job, const std::vector<JobResult>& results,
                        const TokenPieces& pieces, int64_t unix_seconds) {
  const bool chat = job.form == JobForm::kChatBatch;
  const OpenAiEndpoint endpoint =
      chat ? OpenAiEndpoint::kChatCompletions : OpenAiEndpoint::kCompletions;
  OrderedJson choices = OrderedJson::array();
  int64_t completion_tokens = 0;
  for (const JobResult& result : results) {
    OrderedJson choice = {{"index", result.choice.value_or(0)}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", result.text}};
    } else {
      choice["text"] = result.text;
    }
    choice["logprobs"] = BatchLogprobs(endpoint, result, pieces);
    choice["finish_reason"] = result.finish_reason;
    choices.push_back(std::move(choice));
    completion_tokens += result.completion_tokens;
  }
  const int64_t prompt_tokens = results.empty() ? 0 : results.front().prompt_tokens;
  const int64_t cached_tokens = results.empty() ? 0 : results.front().cached_tokens;
  OrderedJson body = {{"id", absl::StrCat(chat ? "chatcmpl-" : "cmpl-", job.line)},
                      {"object", chat ? "chat.completion" : "text_completion"},
                      {"created", unix_seconds},
                      {"model", job.model},
                      {"choices", std::move(choices)},
                      {"usage",
                       {{"prompt_tokens", prompt_tokens},
                        {"completion_tokens", completion_tokens},
                        {"total_tokens", prompt_tokens + completion_tokens},
                        {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}}}};
  return BatchLine(job, 200, std::move(body), nullptr);
}

// Returns the status code that an HTTP server would send.
int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

OrderedJson BatchError(const JobLabel& label, const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string message(status.message());
  const int http_status = HttpStatus(status.code());
  const char* const type = http_status == 429  ? "rate_limit_error"
                           : http_status < 500 ? "invalid_request_error"
                                               : "server_error";
  OrderedJson error = {{"message", message}, {"type", type}, {"param", nullptr}, {"code", code}};
  return BatchLine(label, http_status, {{"error", std::move(error)}},
                   {{"code", code}, {"message", message}});
}

std::string PlainResult(const JobLabel& label, const JobResult& result) {
  if (!result.choice) return absl::StrCat("[", label.id, "] ", result.text);
  return absl::StrCat("[", label.id, "] ", ChoiceTitle(result), ": ", result.text);
}

}  // namespace

std::string ChoiceTitle(const JobResult& result) {
  return absl::StrCat("choice ", result.choice.value_or(0), " (", result.finish_reason, ")");
}

std::string ResultLine(const JobLabel& label, const JobResult& result, const TokenPieces& pieces) {
  OrderedJson json;
  json["id"] = IdOf(label);
  if (result.choice) json["choice"] = *result.choice;
  json["prompt_token_ids"] = result.prompt_token_ids;
  json["token_ids"] = result.token_ids;
  json["text"] = result.text;
  json["finish_reason"] = result.finish_reason;
  json["usage"] = {{"prompt_tokens", result.prompt_tokens},
                   {"cached_tokens", result.cached_tokens},
                   {"completion_tokens", result.completion_tokens}};
  OrderedJson ledger = OrderedJson::object();
  for (const auto& [name, figure] : result.ledger) ledger[name] = figure;
  json["ledger"] = std::move(ledger);
  if (!result.prefill_worker.empty()) json["prefill_worker"] = result.prefill_worker;
  if (!result.pull_source.empty()) json["pull_source"] = result.pull_source;
  if (!result.decode_worker.empty()) json["decode_worker"] = result.decode_worker;
  if (!result.logprobs.empty()) json["logprobs"] = LogprobsToJson(result, pieces);
  if (result.logits_hash != 0)
    json["logits_hash"] = absl::StrCat(absl::Hex(result.logits_hash, absl::kZeroPad16));
  return Dump(json);
}

std::string ErrorLine(const JobLabel& label, const absl::Status& status) {
  if (label.form != JobForm::kBaton) return Dump(BatchError(label, status));
  OrderedJson json;
  json["id"] = IdOf(label);
  json["error"] = {{"code", absl::StatusCodeToString(status.code())},
                   {"message", std::string(status.message())}};
  return Dump(json);
}

std::string JobResultText(const Job& job, const std::vector<JobResult>& results, bool json,
                          int64_t unix_seconds, const TokenPieces& pieces) {
  if (job.form != JobForm::kBaton) return Dump(BatchResult(job, results, pieces, unix_seconds));
  std::vector<std::string> choices;
  for (const JobResult& result : results) {
    choices.push_back(json ? ResultLine(job, result, pieces) : PlainResult(job, result));
  }
  return absl::StrJoin(choices, "\n");
}

}  // namespace baton
