// Reads one HTTP/1.x request from bytes, with limits. Boost.Beast parses the lines; this class
// bounds them and refuses what two readers could understand differently.
//
// Use: feed bytes until the state is kHead. Then look at request() and call ExpectBody with the
// limit of its path. Feed the rest until the state is kComplete. kFailed is final; problem() says
// why.
//
// Invariants, for all input: what was fed and not consumed is bounded by the limits. No input
// reaches a CHECK.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/http_message.h"

namespace baton {

class HttpRequestParser {
 public:
  enum class State { kReadingHead, kHead, kReadingBody, kComplete, kFailed };

  explicit HttpRequestParser(size_t max_header_bytes);
  ~HttpRequestParser();

  // Parses the beginning of `bytes` and returns how many bytes it used. The caller passes the rest
  // again, with the bytes that follow. Bytes behind the request are never used.
  size_t Feed(std::string_view bytes);
  // REQUIRES: state() is kHead. Afterwards the state is kReadingBody, kComplete (there is no body)
  // or kFailed (the body is announced to be longer than `max_body_bytes`).
  void ExpectBody(size_t max_body_bytes);

  State state() const { return state_; }
  const HttpProblem& problem() const { return problem_; }  // of kFailed
  // From kHead on, without body until kComplete.
  const HttpRequest& request() const { return request_; }
  HttpRequest TakeRequest() { return std::move(request_); }  // REQUIRES: kComplete
  // From kHead on.
  bool version_1_0() const { return version_1_0_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }
  bool has_body() const { return has_body_; }
  size_t body_bytes() const { return request_.body.size(); }  // received so far

 private:
  class Beast;

  size_t FeedHead(std::string_view bytes);
  size_t FeedBody(std::string_view bytes);
  // Returns what is wrong with a complete head, before it is parsed.
  std::optional<HttpProblem> CheckLines(std::string_view head) const;
  void FinishHead();
  size_t Fail(HttpProblem problem);

  const size_t max_header_bytes_;
  const std::unique_ptr<Beast> beast_;
  State state_ = State::kReadingHead;
  size_t searched_ = 0;  // bytes of an incomplete head in which no end was found
  size_t max_body_bytes_ = 0;
  HttpRequest request_;
  HttpProblem problem_;
  bool version_1_0_ = false;
  bool keep_alive_ = false;
  bool expects_continue_ = false;
  bool has_body_ = false;
};

}  // namespace baton
