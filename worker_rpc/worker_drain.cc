#include "worker_rpc/worker_drain.h"

#include <utility>

namespace baton {

void Drain(DrainingWorker& worker, int64_t drain_ms, std::function<void()> drained) {
  worker.ReportDraining();
  worker.LeaveRouters([&worker, drain_ms, drained = std::move(drained)] {
    worker.RefuseCalls();
    worker.AwaitCalls(drain_ms, [&worker, drained] {
      worker.CutOffCalls();
      drained();
    });
  });
}

}  // namespace baton
