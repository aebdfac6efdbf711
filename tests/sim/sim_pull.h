// Prefix pull at the simulated router: production's PullFlow over simulated calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/request.h"
#include "router/pull_flow.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_worker.h"

namespace baton {

class SimPull final : public std::enable_shared_from_this<SimPull> {
 public:
  using Outcome = PullFlow::Outcome;
  struct Parties {
    SimNetwork* network;
    int32_t router;
    SimWorker* receiver;
    SimWorker* source;
    uint64_t number;  // the request's number in the history
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
  PullFlow flow_;
  std::shared_ptr<SimCall> stream_;
  std::shared_ptr<SimCall> send_;
};

}  // namespace baton
