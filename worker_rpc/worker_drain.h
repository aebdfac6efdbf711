// Drain sequence of a worker: the order in which it stops serving.
//
//  1. It reports itself as draining, health checks fail, and it says goodbye to its routers. They
//     send no new calls then.
//  2. It still accepts calls for the shutdown delay.
//  3. Calls that still arrive are refused.
//  4. Running calls may finish, for a bounded time.
//  5. The remaining calls are cancelled. Then nothing enters the engine, and it may be shut down.
//
// Each step starts when the previous one has ended. If calls were refused before the routers know,
// requests would fail that another worker could serve.
//
// Pure: a worker process runs the steps by waiting, the simulation from its event queue.
//
// Thread safety: none; one thread only.
#pragma once

#include <cstdint>
#include <functional>

namespace baton {

class DrainingWorker {
 public:
  virtual ~DrainingWorker() = default;
  virtual void ReportDraining() = 0;
  // `done` runs once every router has been told or has timed out.
  virtual void LeaveRouters(std::function<void()> done) = 0;
  // `done` runs after `delay_ms`. Not called for 0.
  virtual void AwaitDelay(int64_t delay_ms, std::function<void()> done) = 0;
  virtual void RefuseCalls() = 0;
  // `done` runs once no call is left, or after `most_ms`.
  virtual void AwaitCalls(int64_t most_ms, std::function<void()> done) = 0;
  virtual void CutOffCalls() = 0;
};

struct DrainTimes {
  int64_t delay_ms = 0;  // calls are still accepted
  int64_t drain_ms = 0;  // most time for running calls after that
};

// Runs the sequence, then `drained`. `worker` must live until `drained` has run.
void Drain(DrainingWorker& worker, const DrainTimes& times, std::function<void()> drained);

}  // namespace baton
