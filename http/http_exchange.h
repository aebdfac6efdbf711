// The answer to one HTTP request: whole, or streamed in pieces. The server creates an exchange and
// gives it to the request's handler, which may keep it and answer later.
//
// Life: an answer is Reply, or Begin, any number of Write, and End. If the handler drops the
// exchange before that, the server answers with status 500, or breaks a begun answer off. The
// exchange may live longer than its connection and its server. Later calls then have no effect.
//
// The queue for a slow client is bounded (HttpServerOptions::max_queued_bytes). A longer queue
// breaks the answer off. A piece of any size is accepted while the queue is empty.
//
// Lock order: any lock of the caller, then the exchange's. The exchange never calls its `gone`
// function from within another function.
//
// Thread safety: every function from any thread, except OnGone.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "http/http_message.h"
#include "http/http_response_head.h"

namespace baton {

class HttpExchange {
 public:
  using Clock = std::chrono::steady_clock;

  // `wake` is called, under this object's lock, when there is something to write. It must only
  // post. Detach ends that.
  HttpExchange(HttpFraming framing, size_t max_queued_bytes, std::function<void()> wake);
  HttpExchange(const HttpExchange&) = delete;

  const std::string& id() const { return framing_.request_id; }

  // Sets the function for the case that the client leaves, or the server ends, before the answer is
  // complete. It is called at most once, on an I/O thread, and must not block. REQUIRES: called by
  // the handler before it returns.
  void OnGone(std::function<void()> gone);

  // Sends a whole answer.
  void Reply(HttpResponse response);

  // Starts a streamed answer with this head; `response.body` is its first piece. The functions
  // return false if the client is gone, the answer has ended, or too much is unread.
  bool Begin(HttpResponse response);
  bool Write(std::string_view piece);
  // Ends the answer after the queued pieces.
  void End();
  // Breaks the answer off, so that the client sees an incomplete one.
  void Abort();

  bool begun() const;

 private:
  friend class HttpConnection;

  enum class State { kOpen, kBegun, kEnded, kAborted };

  // What the connection takes to write.
  struct Output {
    std::string bytes;
    Clock::time_point since;  // when the first byte was queued
    bool ended = false;       // nothing follows
    bool aborted = false;
    bool keep_alive = false;  // after the end
  };
  Output Take();
  // The connection is done with this exchange. Returns the gone function, if it is to be called
  // now.
  std::function<void()> Detach();

  bool AppendLocked(std::string_view piece);
  void QueueLocked(std::string_view bytes);
  void WakeLocked();

  const HttpFraming framing_;
  const size_t max_queued_bytes_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;  // null: detached
  std::function<void()> gone_;
  State state_ = State::kOpen;
  HttpBodyFraming body_framing_ = HttpBodyFraming::kNone;
  bool keep_alive_ = false;
  bool woken_ = false;  // wake_ was called and Take was not called since
  std::string queued_;
  Clock::time_point queued_since_;
};

}  // namespace baton
