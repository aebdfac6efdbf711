// Reads the streamed answer of an OpenAI-compatible server: server-sent events, each with a JSON
// chunk, and "[DONE]" at the end. The server is not trusted.
//
// Content is a chunk with text. The chunk with the role, an empty delta and the usage are none. If
// the server sends usage, its counts replace those of the messages.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "loadtest/load_target.h"
#include "loadtest/sse_parser.h"

namespace baton {

inline constexpr size_t kMaxEventBytes = 4 << 20;

class OpenAiStream {
 public:
  // `sink` gets the content, but not the end.
  explicit OpenAiStream(AnswerSink& sink);

  // Takes bytes of the body of an answer with status 200.
  void Feed(std::string_view bytes);
  // True if no more bytes are needed: after [DONE] or an error.
  bool ended() const { return ended_; }
  // Returns the end of the answer. Without [DONE], it is a failure.
  AnswerEnd TakeEnd();

 private:
  void TakeEvent(std::string_view data);
  void Fail(std::string error, std::string message);

  AnswerSink& sink_;
  SseParser parser_;
  AnswerEnd end_;
  bool ended_ = false;
  bool done_ = false;
};

// Returns the end of an answer with a status other than 200. 429 and 503 are refusals.
AnswerEnd OpenAiError(int status, std::string_view body);

}  // namespace baton
