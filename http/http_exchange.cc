#include "http/http_exchange.h"

#include <utility>

namespace baton {

HttpExchange::HttpExchange(HttpFraming framing, size_t max_queued_bytes, std::function<void()> wake)
    : framing_(std::move(framing)), max_queued_bytes_(max_queued_bytes), wake_(std::move(wake)) {}

void HttpExchange::OnGone(std::function<void()> gone) {
  std::lock_guard lock(mutex_);
  gone_ = std::move(gone);
}

void HttpExchange::Reply(HttpResponse response) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  const HttpHead head = MakeHttpHead(response, response.body.size(), framing_);
  keep_alive_ = head.keep_alive;
  state_ = State::kEnded;
  QueueLocked(head.text);
  if (head.body == HttpBodyFraming::kLength) QueueLocked(response.body);
  WakeLocked();
}

bool HttpExchange::Begin(HttpResponse response) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kOpen || wake_ == nullptr) return false;
  const HttpHead head = MakeHttpHead(response, std::nullopt, framing_);
  body_framing_ = head.body;
  keep_alive_ = head.keep_alive;
  state_ = State::kBegun;
  QueueLocked(head.text);
  return AppendLocked(response.body);
}

bool HttpExchange::Write(std::string_view piece) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kBegun || wake_ == nullptr) return false;
  return AppendLocked(piece);
}

bool HttpExchange::AppendLocked(std::string_view piece) {
  if (!piece.empty() && body_framing_ != HttpBodyFraming::kNone) {
    if (!queued_.empty() && queued_.size() + piece.size() > max_queued_bytes_) {
      state_ = State::kAborted;
      queued_.clear();
      WakeLocked();
      return false;
    }
    if (body_framing_ == HttpBodyFraming::kChunked) {
      QueueLocked(HttpChunk(piece));
    } else {
      QueueLocked(piece);
    }
  }
  WakeLocked();
  return true;
}

void HttpExchange::End() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kBegun) return;
  state_ = State::kEnded;
  if (body_framing_ == HttpBodyFraming::kChunked) QueueLocked(kHttpLastChunk);
  WakeLocked();
}

void HttpExchange::Abort() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kEnded || state_ == State::kAborted) return;
  state_ = State::kAborted;
  queued_.clear();
  WakeLocked();
}

bool HttpExchange::begun() const {
  std::lock_guard lock(mutex_);
  return state_ != State::kOpen;
}

void HttpExchange::QueueLocked(std::string_view bytes) {
  if (wake_ == nullptr) return;
  if (queued_.empty()) queued_since_ = Clock::now();
  queued_.append(bytes);
}

void HttpExchange::WakeLocked() {
  if (woken_ || wake_ == nullptr) return;
  woken_ = true;
  wake_();
}

HttpExchange::Output HttpExchange::Take() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  return {.bytes = std::exchange(queued_, {}),
          .since = queued_since_,
          .ended = state_ == State::kEnded,
          .aborted = state_ == State::kAborted,
          .keep_alive = keep_alive_};
}

std::function<void()> HttpExchange::Detach() {
  std::lock_guard lock(mutex_);
  wake_ = nullptr;
  queued_.clear();
  std::function<void()> gone = std::move(gone_);
  gone_ = nullptr;
  const bool complete = state_ == State::kEnded || state_ == State::kAborted;
  return complete ? nullptr : std::move(gone);
}

}  // namespace baton
