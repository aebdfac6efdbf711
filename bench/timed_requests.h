// Requests to an engine, with the times at which their tokens came.
//
// Thread safety: any thread may ask. Answers come on the engine's thread.
#pragma once

#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace baton {

// Processor time of all threads of this process, in seconds. Threads that wait for work by spinning
// count too.
inline double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct TimedAnswer {
  std::vector<TokenId> tokens;
  double first_token_s = 0;      // from the call of Engine::Generate
  double first_token_cpu_s = 0;  // processor time of the process in that time
  double end_s = 0;              // the last token
  double end_cpu_s = 0;
  RequestLedger ledger;

  // Speed behind the first token. REQUIRES: at least two tokens.
  double decode_tokens_per_s() const {
    return static_cast<double>(tokens.size() - 1) / (end_s - first_token_s);
  }
};

class TimingSink final : public RequestSink {
 public:
  void OnTicket(const TransferTicket&) override {}
  void OnTokens(TokenOutput output) override {
    answer_.end_s = Seconds();
    answer_.end_cpu_s = ProcessorSeconds() - begin_cpu_s_;
    if (answer_.tokens.empty()) {
      answer_.first_token_s = answer_.end_s;
      answer_.first_token_cpu_s = answer_.end_cpu_s;
    }
    answer_.tokens.insert(answer_.tokens.end(), output.token_ids.begin(), output.token_ids.end());
  }
  void OnFinish(FinishInfo info) override {
    answer_.ledger = info.ledger;
    if (info.last) end_.set_value(std::move(answer_));
  }
  void OnError(absl::Status status) override { end_.set_value(std::move(status)); }

  std::future<absl::StatusOr<TimedAnswer>> End() { return end_.get_future(); }

 private:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const double begin_cpu_s_ = ProcessorSeconds();
  TimedAnswer answer_;
  std::promise<absl::StatusOr<TimedAnswer>> end_;
};

// Starts a request. The result is ready when its last choice has ended.
inline std::future<absl::StatusOr<TimedAnswer>> StartTimed(Engine& engine,
                                                           GenerateRequest request) {
  auto sink = std::make_shared<TimingSink>();
  auto end = sink->End();
  engine.Generate(std::move(request), sink);
  return end;
}

inline absl::StatusOr<TimedAnswer> AskTimed(Engine& engine, GenerateRequest request) {
  return StartTimed(engine, std::move(request)).get();
}

}  // namespace baton
