// When a GenerateCall may start: its tenant's tokens, and its turn among all tenants.

#include <algorithm>
#include <utility>

#include "router/grpc/generate_call.h"

namespace baton {

bool GenerateCall::MayStart() {
  if (visit_ == nullptr) return true;
  const int64_t answers = int64_t{waiting_request_.choices.n()};
  const auto prompt = static_cast<int64_t>(waiting_request_.prompt.size());
  const int64_t longest = waiting_request_.open_ended
                              ? std::max<int64_t>(0, waiting_request_.new_tokens - prompt)
                              : waiting_request_.new_tokens;
  if (absl::Status status = visit_->Reserve(prompt + answers * longest); !status.ok()) {
    session_.OnClientGone(std::move(status));
    return false;
  }
  // Another call may run this function under its own lock, so it only posts.
  return visit_->AwaitTurn([self = shared_from_this()] {
    self->host_.text_tasks->Continue([self] { self->StartSession(); });
  });
}

void GenerateCall::StartSession() {
  std::lock_guard lock(state_mutex_);
  if (!session_.ended()) session_.Start(std::move(waiting_request_), shared_from_this());
}

}  // namespace baton
