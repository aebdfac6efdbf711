// One pull at the simulated router: what PullCall is in production (router/grpc/pull_call.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/request.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_worker.h"

namespace baton {

class SimPull final : public std::enable_shared_from_this<SimPull> {
 public:
  struct Outcome {
    absl::Status status;
    bool receiver_gone = false;
    bool source_gone = false;
  };
  struct Parties {
    SimNetwork* network;
    int32_t router;
    SimWorker* receiver;
    SimWorker* source;
    uint64_t number;  // of the request, in the history
  };

  static std::shared_ptr<SimPull> Start(const Parties& parties, const PullRequest& request,
                                        int64_t deadline_us,
                                        std::function<void(const Outcome&)> done);
  void Cancel() { stream_->Cancel(); }

 private:
  SimPull(const Parties& parties, PullRequest request, int64_t deadline_us,
          std::function<void(const Outcome&)> done)
      : parties_(parties),
        request_(std::move(request)),
        deadline_us_(deadline_us),
        done_(std::move(done)) {}

  void Begin();
  void AskSource(const TransferTicket& ticket);
  void OnEnd(const absl::Status& status);

  const Parties parties_;
  const PullRequest request_;
  const int64_t deadline_us_;
  const std::function<void(const Outcome&)> done_;
  absl::Status source_status_;
  std::shared_ptr<SimCall> stream_;
  std::shared_ptr<SimCall> send_;
};

}  // namespace baton
