// Writes one answer in OpenAI's form, from events. A stream and a whole body come from the same
// object, so both say the same. A request may have several prompts: choice i of prompt p has the
// index p × n + i.
//
// Streams: Started, Tokens and Finished return complete server-sent events, "data: {…}\n\n". They
// may return several, or none: text that is held back gives no event. A choice begins with its
// role, in the same string as its first content. Its last chunk has an empty delta and the finish
// reason. Without `stream`, these functions return "", and Done returns the body.
//
// Untrusted events never crash: an event with an index out of range, or of a choice that has
// finished, is ignored. A piece of text never splits a character, because every event's text ends
// at a character boundary; other bytes become U+FFFD.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer_form.h"
#include "openai/api_error.h"
#include "openai/json_output.h"
#include "openai/logprobs_output.h"
#include "requests/answer_events.h"

namespace baton {

struct AnswerHead {
  std::string id = {};  // "chatcmpl-…", "cmpl-…" (AnswerId)
  int64_t created = 0;  // seconds since 1970
  std::string model = {};
  std::string system_fingerprint = {};  // of the model; empty: null
};

// Returns "chatcmpl-" or "cmpl-" and the request's id.
std::string AnswerId(OpenAiEndpoint endpoint, std::string_view request_id);

class AnswerWriter {
 public:
  // `token_text`: for log-probabilities, and to echo token ids.
  AnswerWriter(AnswerForm form, AnswerHead head, TokenText token_text);
  AnswerWriter(const AnswerWriter&) = delete;

  // `prompt`: index of the prompt, from 0.
  std::string Event(int32_t prompt, const AnswerEvent& event);
  std::string Started(int32_t prompt, const AnswerStarted& started);
  std::string Tokens(int32_t prompt, const AnswerTokens& tokens);
  std::string Finished(int32_t prompt, const AnswerFinished& finished);

  // Returns true once every choice of every prompt has finished.
  bool AllFinished() const { return unfinished_ == 0; }

  // Streams: the chunk with the usage, if asked for, and "data: [DONE]\n\n". Otherwise the body.
  // Call it once, when all choices have finished.
  std::string Done();

  // Streams: the error as last event, without [DONE].
  static std::string StreamError(const ApiError& error);

 private:
  struct Prompt {
    int32_t tokens = 0;
    int32_t cached_tokens = 0;
    bool ended = false;  // cached_tokens is known
    std::vector<TokenId> token_ids;
  };
  struct Choice {
    Choice(OpenAiEndpoint endpoint, const TokenText* text) : logprobs(endpoint, text) {}

    bool begun = false;  // streams: the role, or the echo, was written
    bool finished = false;
    std::string text;                // without `stream`
    std::vector<TokenId> token_ids;  // without `stream`, if asked for
    LogprobsOutput logprobs;
    int64_t tokens = 0;
    AnswerFinished end;
  };
  // What one chunk has beside its text.
  struct Chunk {
    int32_t index = 0;
    std::string_view text = {};
    bool role = false;
    const std::vector<TokenId>* token_ids = nullptr;
    std::string logprobs = "null";
    const AnswerFinished* end = nullptr;
  };

  bool IsChat() const { return form_.endpoint == OpenAiEndpoint::kChatCompletions; }
  int32_t IndexOf(int32_t prompt, int32_t choice) const;  // -1: there is no such choice
  const Prompt& PromptOf(int32_t index) const { return prompts_[index / form_.n]; }

  std::string Begin(int32_t index);
  std::string EchoOf(int32_t index) const;
  std::string WriteChunk(const Chunk& chunk);
  void WriteHead(const char* object, JsonOutput& out) const;
  void WriteDelta(const Chunk& chunk, JsonOutput& out) const;
  void WriteTokenIds(const char* key, const std::vector<TokenId>& ids, JsonOutput& out) const;
  void WriteEnd(const AnswerFinished& end, JsonOutput& out) const;
  void WriteUsage(JsonOutput& out) const;
  void WriteChoice(int32_t index, JsonOutput& out);
  std::string Body();

  const AnswerForm form_;
  const AnswerHead head_;
  const TokenText token_text_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // by index
  size_t unfinished_;
};

}  // namespace baton
