#include "openai/answer_writer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/str_cat.h"

namespace baton {
namespace {

constexpr char kDone[] = "data: [DONE]\n\n";

// No line break is inside JSON, so one line has the whole event.
std::string ServerSentEvent(std::string_view json) { return StrCat("data: ", json, "\n\n"); }

}  // namespace

std::string AnswerId(OpenAiEndpoint endpoint, std::string_view request_id) {
  return StrCat(endpoint == OpenAiEndpoint::kChatCompletions ? "chatcmpl-" : "cmpl-", request_id);
}

AnswerWriter::AnswerWriter(AnswerForm form, AnswerHead head, TokenText token_text)
    : form_(std::move(form)),
      head_(std::move(head)),
      token_text_(std::move(token_text)),
      prompts_(static_cast<size_t>(form_.prompts)) {
  unfinished_ = prompts_.size() * static_cast<size_t>(form_.n);
  choices_.reserve(unfinished_);
  for (size_t i = 0; i < unfinished_; ++i) choices_.emplace_back(form_.endpoint, &token_text_);
}

std::string AnswerWriter::Event(int32_t prompt, const AnswerEvent& event) {
  if (const auto* const started = std::get_if<AnswerStarted>(&event)) {
    return Started(prompt, *started);
  }
  if (const auto* const tokens = std::get_if<AnswerTokens>(&event)) return Tokens(prompt, *tokens);
  return Finished(prompt, std::get<AnswerFinished>(event));
}

std::string AnswerWriter::Started(int32_t prompt, const AnswerStarted& started) {
  if (prompt < 0 || prompt >= form_.prompts) return "";
  prompts_[prompt].tokens = started.prompt_tokens;
  if (form_.return_token_ids) prompts_[prompt].token_ids = started.prompt_token_ids;
  return "";
}

std::string AnswerWriter::Tokens(int32_t prompt, const AnswerTokens& tokens) {
  const int32_t index = IndexOf(prompt, tokens.choice);
  if (index < 0 || choices_[index].finished) return "";
  Choice& choice = choices_[index];
  choice.tokens += static_cast<int64_t>(tokens.token_ids.size());
  if (form_.logprobs) {
    const size_t details = std::min(tokens.logprobs.size(), tokens.token_ids.size());
    for (size_t i = 0; i < details; ++i) {
      choice.logprobs.Add(tokens.token_ids[i], tokens.logprobs[i]);
    }
  }
  if (!form_.stream) {
    choice.text += tokens.text;
    if (form_.return_token_ids) {
      choice.token_ids.insert(choice.token_ids.end(), tokens.token_ids.begin(),
                              tokens.token_ids.end());
    }
    return "";
  }
  if (tokens.text.empty() && choice.logprobs.empty() && !form_.return_token_ids) return "";
  Chunk chunk = {.index = index, .text = tokens.text, .logprobs = choice.logprobs.Take()};
  if (form_.return_token_ids) chunk.token_ids = &tokens.token_ids;
  return Begin(index) + WriteChunk(chunk);
}

std::string AnswerWriter::Finished(int32_t prompt, const AnswerFinished& finished) {
  const int32_t index = IndexOf(prompt, finished.choice);
  if (index < 0 || choices_[index].finished) return "";
  Choice& choice = choices_[index];
  choice.finished = true;
  --unfinished_;
  choice.tokens = finished.completion_tokens;
  choice.end = finished;
  Prompt& asked = prompts_[prompt];
  asked.tokens = finished.prompt_tokens;
  asked.cached_tokens = finished.cached_tokens;
  asked.ended = true;
  if (!form_.stream) {
    choice.text += finished.text;
    return "";
  }
  std::string out = Begin(index);
  if (!finished.text.empty()) out += WriteChunk({.index = index, .text = finished.text});
  return out + WriteChunk({.index = index, .text = {}, .end = &choice.end});
}

std::string AnswerWriter::Done() {
  if (!form_.stream) return Body();
  if (!form_.include_usage) return kDone;
  JsonOutput out;
  out.BeginObject();
  WriteHead(IsChat() ? "chat.completion.chunk" : "text_completion", out);
  out.Key("choices").BeginArray().EndArray();
  out.Key("usage");
  WriteUsage(out);
  out.EndObject();
  return ServerSentEvent(out.Take()) + kDone;
}

std::string AnswerWriter::StreamError(const ApiError& error) {
  return ServerSentEvent(ErrorBody(error));
}

int32_t AnswerWriter::IndexOf(int32_t prompt, int32_t choice) const {
  if (prompt < 0 || prompt >= form_.prompts || choice < 0 || choice >= form_.n) return -1;
  return prompt * form_.n + choice;
}

// Writes what comes before the choice's first content.
std::string AnswerWriter::Begin(int32_t index) {
  if (std::exchange(choices_[index].begun, true)) return "";
  if (IsChat()) return WriteChunk({.index = index, .text = {}, .role = true});
  const std::string echo = EchoOf(index);
  if (echo.empty() && !form_.return_token_ids) return "";
  return WriteChunk({.index = index, .text = echo, .role = true});
}

std::string AnswerWriter::EchoOf(int32_t index) const {
  if (form_.echo.empty()) return "";
  const PromptPart& prompt = form_.echo[index / form_.n];
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  std::string bytes;
  if (!token_text_) return bytes;
  for (const TokenId token : std::get<std::vector<TokenId>>(prompt)) bytes += token_text_(token);
  return bytes;
}

std::string AnswerWriter::WriteChunk(const Chunk& chunk) {
  JsonOutput out;
  out.BeginObject();
  WriteHead(IsChat() ? "chat.completion.chunk" : "text_completion", out);
  if (IsChat() && chunk.role && form_.return_token_ids) {
    WriteTokenIds("prompt_token_ids", PromptOf(chunk.index).token_ids, out);
  }
  out.Key("choices").BeginArray().BeginObject();
  out.Key("index").Integer(chunk.index);
  WriteDelta(chunk, out);
  out.Key("logprobs").Raw(chunk.logprobs);
  out.Key("finish_reason").TextOrNull(chunk.end == nullptr ? "" : chunk.end->finish_reason);
  if (!IsChat() && chunk.role && form_.return_token_ids) {
    WriteTokenIds("prompt_token_ids", PromptOf(chunk.index).token_ids, out);
  }
  if (chunk.token_ids != nullptr) WriteTokenIds("token_ids", *chunk.token_ids, out);
  if (chunk.end != nullptr) WriteEnd(*chunk.end, out);
  out.EndObject().EndArray();
  if (form_.include_usage) out.Key("usage");
  if (form_.continuous_usage) {
    WriteUsage(out);
  } else if (form_.include_usage) {
    out.Null();
  }
  out.EndObject();
  return ServerSentEvent(out.Take());
}

void AnswerWriter::WriteHead(const char* object, JsonOutput& out) const {
  out.Key("id").Text(head_.id);
  out.Key("object").Text(object);
  out.Key("created").Integer(head_.created);
  out.Key("model").Text(head_.model);
  out.Key("system_fingerprint").TextOrNull(head_.system_fingerprint);
}

void AnswerWriter::WriteDelta(const Chunk& chunk, JsonOutput& out) const {
  if (!IsChat()) {
    out.Key("text").Text(chunk.text);
    return;
  }
  out.Key("delta").BeginObject();
  if (chunk.role) out.Key("role").Text("assistant");
  if (chunk.end == nullptr) out.Key("content").Text(chunk.text);
  out.EndObject();
}

void AnswerWriter::WriteTokenIds(const char* key, const std::vector<TokenId>& ids,
                                 JsonOutput& out) const {
  out.Key(key).BeginArray();
  for (const TokenId id : ids) out.Integer(id);
  out.EndArray();
}

void AnswerWriter::WriteEnd(const AnswerFinished& end, JsonOutput& out) const {
  if (!form_.return_ledger) return;
  out.Key("ledger").BeginObject();
  for (const auto& [name, figure] : end.ledger) out.Key(name).Integer(figure);
  out.EndObject();
  if (!end.prefill_worker.empty()) out.Key("prefill_worker").Text(end.prefill_worker);
  if (!end.pull_source.empty()) out.Key("pull_source").Text(end.pull_source);
  if (!end.decode_worker.empty()) out.Key("decode_worker").Text(end.decode_worker);
}

// The cached tokens are known once a choice of each prompt has finished.
void AnswerWriter::WriteUsage(JsonOutput& out) const {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  bool ended = true;
  for (const Prompt& prompt : prompts_) {
    prompt_tokens += prompt.tokens;
    cached_tokens += prompt.cached_tokens;
    ended = ended && prompt.ended;
  }
  int64_t completion_tokens = 0;
  for (const Choice& choice : choices_) completion_tokens += choice.tokens;
  out.BeginObject();
  out.Key("prompt_tokens").Integer(prompt_tokens);
  out.Key("completion_tokens").Integer(completion_tokens);
  out.Key("total_tokens").Integer(prompt_tokens + completion_tokens);
  if (ended) {
    out.Key("prompt_tokens_details").BeginObject();
    out.Key("cached_tokens").Integer(cached_tokens).EndObject();
  }
  out.EndObject();
}

void AnswerWriter::WriteChoice(int32_t index, JsonOutput& out) {
  Choice& choice = choices_[index];
  out.BeginObject();
  out.Key("index").Integer(index);
  if (IsChat()) {
    out.Key("message").BeginObject().Key("role").Text("assistant");
    out.Key("content").Text(choice.text).Key("refusal").Null().EndObject();
  } else {
    out.Key("text").Text(EchoOf(index) + choice.text);
  }
  out.Key("logprobs").Raw(choice.logprobs.Take());
  out.Key("finish_reason").TextOrNull(choice.end.finish_reason);
  if (form_.return_token_ids) {
    if (!IsChat()) WriteTokenIds("prompt_token_ids", PromptOf(index).token_ids, out);
    WriteTokenIds("token_ids", choice.token_ids, out);
  }
  WriteEnd(choice.end, out);
  out.EndObject();
}

std::string AnswerWriter::Body() {
  JsonOutput out;
  out.BeginObject();
  WriteHead(IsChat() ? "chat.completion" : "text_completion", out);
  out.Key("choices").BeginArray();
  for (int32_t i = 0; i < static_cast<int32_t>(choices_.size()); ++i) WriteChoice(i, out);
  out.EndArray();
  if (IsChat() && form_.return_token_ids) {
    WriteTokenIds("prompt_token_ids", prompts_.front().token_ids, out);
  }
  out.Key("usage");
  WriteUsage(out);
  out.EndObject();
  return out.Take();
}

}  // namespace baton
