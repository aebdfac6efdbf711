// Clients of a run. Each sends one request, reads its answer at its own pace and may cancel.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "tests/sim/chunk_oracle.h"
#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_router.h"

namespace baton {

class SimClients {
 public:
  struct Environment {
    SimNetwork* network;
    SimNode* node;
    SimRouter* router;
    SimModel model;
    int32_t context_length;
    ChunkOracle* chunks;
    std::function<void(const Violation&)> violation;
  };

  explicit SimClients(Environment environment) : environment_(std::move(environment)) {}

  // `request` and `excuses` must outlive this.
  void Schedule(const ScenarioRequest& request, const Excuses& excuses);

  bool all_ended() const { return ended_ == clients_.size(); }
  int64_t last_end_us() const { return last_end_us_; }
  int64_t succeeded() const { return succeeded_; }
  bool Succeeded(uint64_t number) const { return clients_.at(number)->oracle.succeeded(); }

 private:
  struct Client {
    Client(const ScenarioRequest& request, const Excuses& excuses, const Environment& environment)
        : request(request),
          excuses(excuses),
          oracle(request, environment.model, environment.context_length) {}
    const ScenarioRequest& request;
    const Excuses& excuses;
    RequestOracle oracle;
    std::shared_ptr<SimCall> call;
    std::shared_ptr<int32_t> unread = std::make_shared<int32_t>(0);
    std::deque<SimResponse> inbox;
    std::optional<absl::Status> status;  // handled after the inbox is empty
    bool reading = false;
    int32_t messages = 0;
  };

  void Send(const std::shared_ptr<Client>& client);
  void ReadOne(const std::shared_ptr<Client>& client);
  void Take(const std::shared_ptr<Client>& client);
  void End(const std::shared_ptr<Client>& client);
  void Say(const std::optional<Violation>& violation);
  int64_t now_us() const { return environment_.node->queue().now_us(); }

  const Environment environment_;
  std::map<uint64_t, std::shared_ptr<Client>> clients_;
  size_t ended_ = 0;
  int64_t succeeded_ = 0;
  int64_t last_end_us_ = 0;
};

}  // namespace baton
