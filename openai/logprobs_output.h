// Log-probabilities of one choice in OpenAI's two forms.
//
// /v1/chat/completions: an object for each token, with its text, its bytes, and the alternatives.
// /v1/completions: lists of texts, log-probabilities, alternatives by text, and offsets.
// Alternatives include the token itself. An offset counts the characters of all tokens before, from
// 0.
//
// A token can be a part of a character. In chats its text then has U+FFFD, and its bytes are exact.
// In completions its text is "bytes:\xNN…", so that alternatives have different names.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/token_id.h"
#include "common/token_logprob.h"
#include "openai/answer_form.h"
#include "openai/json_output.h"

namespace baton {

// Returns the bytes of a token. The view lives as long as the function.
using TokenText = std::function<std::string_view(TokenId)>;

class LogprobsOutput {
 public:
  // `text` must outlive this. An empty function gives empty texts.
  LogprobsOutput(OpenAiEndpoint endpoint, const TokenText* text)
      : endpoint_(endpoint), text_(text) {}

  void Add(TokenId token, const TokenDetail& detail);

  bool empty() const { return tokens_.empty(); }
  // Returns the JSON of the tokens since the last call; "null" if there are none. Offsets go on.
  std::string Take();

 private:
  void AddToChat(TokenId token, const TokenDetail& detail);
  void AddToCompletion(TokenId token, const TokenDetail& detail);
  std::string_view TextOf(TokenId token) const;

  const OpenAiEndpoint endpoint_;
  const TokenText* const text_;
  // Elements of lists, without brackets. The last three only for completions.
  JsonOutput tokens_;
  JsonOutput logprobs_;
  JsonOutput tops_;
  JsonOutput offsets_;
  int64_t characters_ = 0;  // of all tokens so far
};

}  // namespace baton
