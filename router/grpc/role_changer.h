// Runs the role planner (router/role_planning.h) over gRPC: passes it the fleet and the load, and
// makes its calls of Worker.SetRole.
//
// Thread safety: construct, Tick and destroy from one thread; Status from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "baton/v1/roles.pb.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/clock.h"
#include "router/grpc/worker_channels.h"
#include "router/role_planning.h"
#include "router/router_core.h"
#include "rpc/client_unary_call.h"

namespace baton {

class RoleChanger {
 public:
  // All pointers must outlive this. `name` identifies this planner to the workers.
  RoleChanger(const RolePlanningOptions& options, std::string name, RouterCore* core,
              WorkerChannels* channels, const Clock* clock);
  // Cancels the call in flight.
  ~RoleChanger();

  // Looks at the fleet if that is due. Call it several times a second.
  void Tick();
  // For GetStatus. Empty mode: the planner is off.
  v1::RolePlan Status() const;

 private:
  using SetRoleCall = ClientUnaryCall<v1::Worker::Stub, v1::SetRoleRequest, v1::SetRoleResponse>;

  void Begin(const RoleCall& call);  // holds mutex_
  void OnAnswer(const absl::Status& status);
  void LogWish();  // holds mutex_

  const std::string name_;
  RouterCore* const core_;
  WorkerChannels* const channels_;
  const Clock* const clock_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  RolePlanning planning_;
  std::shared_ptr<SetRoleCall> call_;  // in flight
  bool stopping_ = false;
  std::string logged_;  // the last wish in the log
};

}  // namespace baton
