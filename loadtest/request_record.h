// What a load test keeps of one request: when it should have been sent, when it was, and when each
// part of its answer came.
//
// AnswerTimer fills a record from the events of one call. All times are microseconds from the start
// of the run, given by the caller.
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loadtest/load_request.h"

namespace baton {

enum class RequestOutcome : uint8_t {
  kWhole,    // the answer is complete
  kRefused,  // the service had no room and said so
  kFailed,   // any other error, a deadline included
};

struct RequestRecord {
  int64_t number = 0;
  int64_t conversation = -1;
  int32_t turn = 0;
  int64_t intended_us = 0;
  int64_t sent_us = 0;
  int64_t first_content_us = -1;  // -1: no content came
  int64_t last_content_us = -1;
  int64_t end_us = 0;
  RequestOutcome outcome = RequestOutcome::kFailed;
  std::string error;  // kind: "RESOURCE_EXHAUSTED", "429 rate_limit_exceeded"
  std::string error_message;
  int32_t prompt_tokens = 0;   // as the target counted them; planned if it did not
  int32_t cached_tokens = -1;  // -1: the target does not tell
  int32_t output_tokens = 0;
  std::vector<int32_t> gaps_us;                         // between messages with content
  std::vector<std::pair<std::string, int64_t>> ledger;  // as the target named it

  // Times from the intended send, so a request that had to wait for the load generator or for an
  // earlier answer counts that wait. REQUIRES of ttft: first_content_us >= 0.
  double ttft_ms() const { return static_cast<double>(first_content_us - intended_us) / 1000; }
  double e2e_ms() const { return static_cast<double>(end_us - intended_us) / 1000; }
  double late_ms() const { return static_cast<double>(sent_us - intended_us) / 1000; }
  // Mean time of an output token behind the first. REQUIRES: has_tpot.
  double tpot_ms() const {
    return static_cast<double>(last_content_us - first_content_us) / 1000 / (output_tokens - 1);
  }
  bool has_tpot() const { return output_tokens > 1 && last_content_us > first_content_us; }
};

// How a call ended, as its target tells.
struct AnswerEnd {
  RequestOutcome outcome = RequestOutcome::kFailed;
  std::string error;
  std::string error_message;
  int32_t prompt_tokens = 0;   // 0: not told
  int32_t cached_tokens = -1;  // -1: not told
  int32_t output_tokens = 0;   // 0: not told, then the tokens of the messages count
  std::vector<std::pair<std::string, int64_t>> ledger;
};

class AnswerTimer {
 public:
  AnswerTimer(const LoadRequest& request, int64_t intended_us, int64_t sent_us);

  // A message with content came. A message without content (a role, a comment) is none.
  // `tokens`: of this message, 0 if unknown.
  void OnContent(int64_t now_us, int32_t tokens);
  // The call ended. A whole answer without content becomes a failure, unless the target counted
  // tokens: then they had no text, and the end counts as the time of the only content.
  void OnEnd(int64_t now_us, AnswerEnd end);

  const RequestRecord& record() const { return record_; }
  RequestRecord TakeRecord() { return std::move(record_); }

 private:
  RequestRecord record_;
  int32_t counted_tokens_ = 0;
};

}  // namespace baton
