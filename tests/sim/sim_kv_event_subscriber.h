// Receives the workers' KV event streams at the simulated router. Runs production's
// KvEventSubscriptions, KvEventIntake and FleetIndex over simulated calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/fleet_index.h"
#include "router/kv_event_intake.h"
#include "router/kv_event_subscriptions.h"
#include "routing/worker_registry.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_worker.h"

namespace baton {

class SimKvEventSubscriber {
 public:
  struct Environment {
    SimNetwork* network;
    SimNode* node;  // the router's
    FleetIndex* index;
    std::function<SimWorker*(const std::string& address)> worker_at;
    // Runs when the index refuses an event that the worker itself sent.
    std::function<void(const std::string& worker_id, const absl::Status& why)> refused;
  };

  explicit SimKvEventSubscriber(Environment environment)
      : environment_(std::move(environment)), subscriptions_(environment_.index) {}

  void Tick(const std::vector<WorkerRecord>& workers);

 private:
  struct Stream {
    explicit Stream(KvEventIntake taking) : intake(std::move(taking)) {}
    KvEventIntake intake;
    std::shared_ptr<SimCall> call;
  };
  void Open(const WorkerRecord& worker, const KvEventPosition& position);
  void Take(const std::string& worker_id, Stream& stream, const SimKvEventMessage& sent);
  void OnEnd(WorkerNumber number, const Stream& stream, const absl::Status& status);

  const Environment environment_;
  KvEventSubscriptions subscriptions_;
  std::map<WorkerNumber, std::shared_ptr<Stream>> streams_;  // open streams
};

}  // namespace baton
