// The order in which a worker stops serving.
//
//   1. It reports itself as draining, and says goodbye to its routers: no new call is routed here.
//   2. Health checks fail, and calls that come all the same are refused.
//   3. Running calls may end, for a bounded time.
//   4. The rest is cut off. Then nothing enters the engine any more, and it may be shut down.
//
// Each step begins when the one before has ended. Refusing calls before the routers know would fail
// requests that another worker can serve.
//
// Pure: a worker process runs the steps by waiting, the simulation from its event queue.
//
// Thread safety: none; belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>

namespace baton {

class DrainingWorker {
 public:
  virtual ~DrainingWorker() = default;
  virtual void ReportDraining() = 0;
  // `done` runs when every router was told or did not answer in time.
  virtual void LeaveRouters(std::function<void()> done) = 0;
  virtual void RefuseCalls() = 0;
  // `done` runs when no call is left, or after `most_ms`.
  virtual void AwaitCalls(int64_t most_ms, std::function<void()> done) = 0;
  virtual void CutOffCalls() = 0;
};

// `worker` lives until `drained` has run.
void Drain(DrainingWorker& worker, int64_t drain_ms, std::function<void()> drained);

}  // namespace baton
