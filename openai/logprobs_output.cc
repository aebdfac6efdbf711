#include "openai/logprobs_output.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace baton {
namespace {

void WriteChatToken(std::string_view text, float logprob, JsonOutput& out) {
  out.Key("token").Text(text).Key("logprob").Logprob(logprob).Key("bytes").BeginArray();
  for (const char byte : text) out.Integer(static_cast<unsigned char>(byte));
  out.EndArray();
}

std::string CompletionName(std::string_view text) {
  if (ValidUtf8Prefix(text) == text.size()) return std::string(text);
  std::string name = "bytes:";
  for (const char byte : text) {
    absl::StrAppend(&name, "\\x", absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
  }
  return name;
}

// The bytes after a character's first one are 10xxxxxx.
int64_t CharactersIn(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

}  // namespace

void LogprobsOutput::Add(TokenId token, const TokenDetail& detail) {
  if (endpoint_ == OpenAiEndpoint::kChatCompletions) {
    AddToChat(token, detail);
  } else {
    AddToCompletion(token, detail);
  }
}

std::string LogprobsOutput::Take() {
  if (tokens_.empty()) return "null";
  const std::string tokens = tokens_.Take();
  if (endpoint_ == OpenAiEndpoint::kChatCompletions) {
    return absl::StrCat("{\"content\":[", tokens, "],\"refusal\":null}");
  }
  return absl::StrCat("{\"text_offset\":[", offsets_.Take(), "],\"token_logprobs\":[",
                      logprobs_.Take(), "],\"tokens\":[", tokens, "],\"top_logprobs\":[",
                      tops_.Take(), "]}");
}

void LogprobsOutput::AddToChat(TokenId token, const TokenDetail& detail) {
  tokens_.BeginObject();
  WriteChatToken(TextOf(token), detail.logprob, tokens_);
  tokens_.Key("top_logprobs").BeginArray();
  for (const TokenLogprob& top : detail.top) {
    tokens_.BeginObject();
    WriteChatToken(TextOf(top.token), top.logprob, tokens_);
    tokens_.EndObject();
  }
  tokens_.EndArray().EndObject();
}

void LogprobsOutput::AddToCompletion(TokenId token, const TokenDetail& detail) {
  const std::string_view text = TextOf(token);
  tokens_.Text(CompletionName(text));
  logprobs_.Logprob(detail.logprob);
  offsets_.Integer(characters_);
  characters_ += CharactersIn(text);
  // Different tokens can have the same text. The most likely one comes first and stays.
  std::vector<std::string> names;
  tops_.BeginObject();
  const auto add = [&](TokenId alternative, float logprob) {
    std::string name = CompletionName(TextOf(alternative));
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    tops_.TextKey(name).Logprob(logprob);
    names.push_back(std::move(name));
  };
  for (const TokenLogprob& top : detail.top) add(top.token, top.logprob);
  add(token, detail.logprob);
  tops_.EndObject();
}

std::string_view LogprobsOutput::TextOf(TokenId token) const {
  return *text_ ? (*text_)(token) : std::string_view();
}

}  // namespace baton
