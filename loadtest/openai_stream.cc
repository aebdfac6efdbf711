#include "loadtest/openai_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/printable_text.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostLedgerFields = 64;

// Returns the member, or null if it is absent or `value` is no object.
const Json& MemberOf(const Json& value, const char* name) {
  static const Json kNull;
  if (!value.is_object()) return kNull;
  const auto at = value.find(name);
  return at == value.end() ? kNull : *at;
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_integer() ? absl::StrCat(value.get<int64_t>()) : "";
}

int32_t CountOf(const Json& value, int32_t otherwise) {
  if (!value.is_number_unsigned()) return otherwise;
  return static_cast<int32_t>(std::min<uint64_t>(value.get<uint64_t>(), INT32_MAX));
}

// Text of a chunk's first choice, in the forms of completions and of chat completions.
std::string ContentOf(const Json& choice) {
  std::string text = TextOf(MemberOf(choice, "text"));
  const Json& delta = MemberOf(choice, "delta");
  for (const char* name : {"reasoning_content", "content"}) {
    if (MemberOf(delta, name).is_string()) text += MemberOf(delta, name).get<std::string>();
  }
  return text;
}

std::vector<TokenId> TokensOf(const Json& choice) {
  const Json& list = MemberOf(choice, "token_ids");
  std::vector<TokenId> out;
  if (!list.is_array()) return out;
  for (const Json& id : list) {
    if (id.is_number_integer()) out.push_back(id.get<TokenId>());
  }
  return out;
}

void TakeUsage(const Json& usage, AnswerEnd& end) {
  if (!usage.is_object()) return;
  end.prompt_tokens = CountOf(MemberOf(usage, "prompt_tokens"), end.prompt_tokens);
  end.output_tokens = CountOf(MemberOf(usage, "completion_tokens"), end.output_tokens);
  const Json& details = MemberOf(usage, "prompt_tokens_details");
  end.cached_tokens = CountOf(MemberOf(details, "cached_tokens"), end.cached_tokens);
}

void TakeLedger(const Json& ledger, AnswerEnd& end) {
  if (!ledger.is_object()) return;
  end.ledger.clear();
  for (const auto& [name, value] : ledger.items()) {
    if (!value.is_number_integer() || end.ledger.size() == kMostLedgerFields) continue;
    end.ledger.emplace_back(name, value.get<int64_t>());
  }
}

// The kind of an error: its code, else its type.
std::string ErrorName(const Json& error) {
  const std::string code = TextOf(MemberOf(error, "code"));
  return Printable(code.empty() ? TextOf(MemberOf(error, "type")) : code, 64);
}

}  // namespace

OpenAiStream::OpenAiStream(AnswerSink& sink)
    : sink_(sink), parser_(kMaxEventBytes, [this](std::string_view data) { TakeEvent(data); }) {}

void OpenAiStream::Fail(std::string error, std::string message) {
  ended_ = true;
  end_.outcome = RequestOutcome::kFailed;
  end_.error = std::move(error);
  end_.error_message = std::move(message);
}

void OpenAiStream::Feed(std::string_view bytes) {
  if (ended_) return;
  const absl::Status fed = parser_.Feed(bytes);
  if (!fed.ok() && !ended_) Fail("bad stream", std::string(fed.message()));
}

void OpenAiStream::TakeEvent(std::string_view data) {
  if (ended_) return;
  if (data == "[DONE]") {
    ended_ = true;
    done_ = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Fail("bad stream", "an event is not a JSON object");
  const Json& error = MemberOf(json, "error");
  if (!error.is_null()) {
    const std::string name = ErrorName(error);
    const std::string message =
        error.is_string() ? TextOf(error) : TextOf(MemberOf(error, "message"));
    return Fail(absl::StrCat("error in stream", name.empty() ? "" : " ", name), Printable(message));
  }
  TakeUsage(MemberOf(json, "usage"), end_);
  TakeLedger(MemberOf(json, "ledger"), end_);
  const Json& choices = MemberOf(json, "choices");
  if (!choices.is_array() || choices.empty()) return;
  TakeLedger(MemberOf(choices[0], "ledger"), end_);
  const std::string text = ContentOf(choices[0]);
  const std::vector<TokenId> tokens = TokensOf(choices[0]);
  if (text.empty() && tokens.empty()) return;
  // Servers send a chunk for each token, unless they say otherwise.
  const auto count = static_cast<int32_t>(std::max<size_t>(1, tokens.size()));
  sink_.OnContent(text, tokens, count);
}

AnswerEnd OpenAiStream::TakeEnd() {
  if (done_) {
    end_.outcome = RequestOutcome::kWhole;
  } else if (!ended_) {
    Fail("cut stream", "the answer ended without [DONE]");
  }
  return std::move(end_);
}

AnswerEnd OpenAiError(int status, std::string_view body) {
  AnswerEnd end;
  end.outcome = status == 429 || status == 503 ? RequestOutcome::kRefused : RequestOutcome::kFailed;
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const Json& error = MemberOf(json, "error");
  const std::string name = ErrorName(error);
  const std::string message = TextOf(MemberOf(error, "message"));
  end.error = absl::StrCat(status, name.empty() ? "" : " ", name);
  end.error_message = message.empty() ? Printable(body, 200) : Printable(message);
  return end;
}

}  // namespace baton
