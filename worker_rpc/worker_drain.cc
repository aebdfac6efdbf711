#include "worker_rpc/worker_drain.h"

#include <utility>

namespace baton {

void Drain(DrainingWorker& worker, const DrainTimes& times, std::function<void()> drained) {
  const auto refuse_and_end = [&worker, drain_ms = times.drain_ms, drained = std::move(drained)] {
    worker.RefuseCalls();
    worker.AwaitCalls(drain_ms, [&worker, drained] {
      worker.CutOffCalls();
      drained();
    });
  };
  worker.ReportDraining();
  worker.LeaveRouters([&worker, delay_ms = times.delay_ms, refuse_and_end] {
    if (delay_ms == 0) return refuse_and_end();
    worker.AwaitDelay(delay_ms, refuse_and_end);
  });
}

}  // namespace baton
