// The answer to one HTTP request of OpenAI's API. It has one Generate call for each prompt, and
// each call writes to a ClientStream of this answer.
//
// The head of a stream waits for its first event, or for `keepalive_ms`. Until then an error is a
// status with a body. Later an error is an event, and the stream ends without [DONE].
//
// If one prompt fails, the whole answer fails, and Tick calls the other prompts off.
//
// Life: the calls own their streams, the streams own the answer. The answer does not own the calls:
// each call owns itself while it works.
//
// Lock order: a call's lock, then this answer's, then the exchange's. No call is called under this
// answer's lock.
//
// Thread safety: every function from any thread, after Start.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "http/http_exchange.h"
#include "openai/answer_writer.h"
#include "router/grpc/client_stream.h"
#include "rpc/call_deadline.h"

namespace baton {

class HttpAnswer : public std::enable_shared_from_this<HttpAnswer> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpAnswer(std::shared_ptr<HttpExchange> exchange, const CallDeadline& deadline,
             std::chrono::milliseconds keepalive);

  // Sets how the answer is written. `headers`: further headers of every answer. REQUIRES: called
  // once, before Stream.
  void Start(AnswerForm form, AnswerHead head, TokenText token_text,
             std::vector<HttpHeader> headers);
  // Returns the stream for a prompt's call.
  std::shared_ptr<ClientStream> Stream(int32_t prompt);
  // The call that writes to one of the streams. If the answer has ended or its deadline has passed,
  // ends the call, which must then not start, and returns false.
  bool AddCall(const std::shared_ptr<ClientListener>& call);

  // Ends the answer with an error, if it has not ended. Also before Start.
  void Fail(const absl::Status& status);
  void Fail(const ApiError& error);

  // The client has left.
  void OnClientGone();
  // Ends the calls; the client gets `status`.
  void CallOff(const absl::Status& status);
  // Calls the prompts off if the answer has failed or its deadline has passed. Sends a comment if
  // nothing was sent for too long.
  void Tick(Clock::time_point now);

  // Used by the streams. Send returns false if the client does not read. Events of a prompt behind
  // the end of the answer are dropped; Tick ends its call.
  bool Send(int32_t prompt, const v1::GenerateResponse& event);
  void EndPrompt(int32_t prompt, const absl::Status& status);

 private:
  // All below: REQUIRES mutex_.
  bool WriteLocked(const std::string& events);
  bool BeginLocked();
  void FailLocked(const ApiError& error);
  std::vector<std::shared_ptr<ClientListener>> Calls();

  const std::shared_ptr<HttpExchange> exchange_;
  const CallDeadline deadline_;
  const std::chrono::milliseconds keepalive_;

  std::mutex mutex_;
  std::unique_ptr<AnswerWriter> writer_;
  bool stream_ = false;
  std::vector<HttpHeader> headers_;
  std::vector<std::weak_ptr<ClientListener>> calls_;
  std::string prompt_field_;
  int32_t prompts_ = 0;
  int32_t open_prompts_ = 0;
  bool begun_ = false;   // the head of a stream is sent
  bool ended_ = false;   // the answer is complete, has failed, or the client is gone
  bool unread_ = false;  // the client did not read what was written
  bool client_gone_ = false;
  bool calls_end_ = false;  // the calls were told to end
  Clock::time_point sent_at_;
};

// The answers that have not ended.
//
// Thread safety: every function from any thread.
class HttpAnswers {
 public:
  void Add(const std::shared_ptr<HttpAnswer>& answer);
  // Call it several times a second.
  void Tick();
  void CallOff(const absl::Status& status);

 private:
  std::vector<std::shared_ptr<HttpAnswer>> Alive();

  std::mutex mutex_;
  std::vector<std::weak_ptr<HttpAnswer>> answers_;
};

}  // namespace baton
