#include "loadtest/request_record.h"

namespace baton {

AnswerTimer::AnswerTimer(const LoadRequest& request, int64_t intended_us, int64_t sent_us) {
  record_.number = request.number;
  record_.conversation = request.conversation;
  record_.turn = request.turn;
  record_.intended_us = intended_us;
  record_.sent_us = sent_us;
  record_.prompt_tokens = request.prompt_tokens;
}

void AnswerTimer::OnContent(int64_t now_us, int32_t tokens) {
  if (record_.first_content_us < 0) {
    record_.first_content_us = now_us;
  } else {
    record_.gaps_us.push_back(static_cast<int32_t>(now_us - record_.last_content_us));
  }
  record_.last_content_us = now_us;
  counted_tokens_ += tokens;
}

void AnswerTimer::OnEnd(int64_t now_us, AnswerEnd end) {
  record_.end_us = now_us;
  record_.outcome = end.outcome;
  record_.error = std::move(end.error);
  record_.error_message = std::move(end.error_message);
  if (end.prompt_tokens > 0) record_.prompt_tokens = end.prompt_tokens;
  record_.cached_tokens = end.cached_tokens;
  record_.output_tokens = end.output_tokens > 0 ? end.output_tokens : counted_tokens_;
  record_.ledger = std::move(end.ledger);
  if (record_.outcome != RequestOutcome::kWhole || record_.first_content_us >= 0) return;
  if (end.output_tokens > 0) {
    record_.first_content_us = now_us;
    record_.last_content_us = now_us;
  } else {
    record_.outcome = RequestOutcome::kFailed;
    record_.error = "no content";
    record_.error_message = "the answer ended without content";
  }
}

}  // namespace baton
