// The service that a load test sends its requests to. Implementations do the I/O.
//
// Thread safety: Send belongs to one thread; CancelAll may be called from any. The events of one
// answer come one after the other, on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/token_id.h"
#include "loadtest/load_request.h"
#include "loadtest/request_record.h"

namespace baton {

// Takes the events of one answer.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // A message with content. `token_ids` is empty if the target does not tell ids; `tokens` is the
  // number of tokens in the message, 0 if unknown.
  virtual void OnContent(std::string_view text, std::span<const TokenId> token_ids,
                         int32_t tokens) = 0;
  // Text that came with the end of the answer. It is not a message of its own.
  virtual void OnLastText(std::string_view text) = 0;
  // The last event. Comes once for every Send.
  virtual void OnEnd(AnswerEnd end) = 0;
};

// The model that a target serves.
struct TargetModel {
  std::string name = {};
  int32_t vocabulary = 0;      // 0: the target does not tell
  int32_t context_length = 0;  // 0: the target does not tell
  bool is_baton = false;       // a Baton router, which knows fields that other servers do not
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // Asks the target for its model. Fails if it does not answer within `timeout_ms`.
  virtual absl::StatusOr<TargetModel> Describe(int64_t timeout_ms) = 0;
  // Sends the request and returns without waiting for anything.
  virtual void Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) = 0;
  // Ends all running answers soon.
  virtual void CancelAll() = 0;
};

}  // namespace baton
