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

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer_form.h"
#include "openai/api_error.h"
#include "requests/answer_events.h"

namespace baton {

struct AnswerHead {
  std::string id;       // "chatcmpl-…", "cmpl-…" (AnswerId)
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;  // of the model; empty: null
};

// Returns the bytes of a token. Used for log-probabilities and `echo`. The view must live as long
// as the writer. An empty function gives no text.
using TokenText = std::function<std::string_view(TokenId)>;

// Returns "chatcmpl-" or "cmpl-" and the request's id.
std::string AnswerId(OpenAiEndpoint endpoint, std::string_view request_id);

class AnswerWriter {
 public:
  AnswerWriter(AnswerForm form, AnswerHead head, TokenText token_text);

  // `prompt`: index of the prompt, from 0.
  std::string Event(int32_t prompt, const AnswerEvent& event);
  std::string Started(int32_t prompt, const AnswerStarted& started);
  std::string Tokens(int32_t prompt, const AnswerTokens& tokens);
  std::string Finished(int32_t prompt, const AnswerFinished& finished);

  // True once every choice of every prompt has finished.
  bool AllFinished() const;

  // Streams: the chunk with the usage, if asked for, and "data: [DONE]\n\n". Otherwise the body.
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
    bool begun = false;  // the role, or the echo, is written
    bool finished = false;
    std::string text;                // without `stream`
    std::vector<TokenId> token_ids;  // without `stream`, if asked for
    std::vector<TokenDetail> logprobs;
    int64_t text_offset = 0;  // characters before the next token, for completions
    int64_t tokens = 0;
    AnswerFinished end;
  };
  AnswerForm form_;
  AnswerHead head_;
  TokenText token_text_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // by index
};

}  // namespace baton
