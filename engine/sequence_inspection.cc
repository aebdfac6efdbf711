#include "engine/sequence_inspection.h"

#include "engine/worker_core.h"
#include "scheduler/scheduler.h"

namespace baton {

std::vector<SequenceInspection> InspectSequences(const WorkerCore& core, const Scheduler& scheduler,
                                                 const KvCacheManager& cache) {
  std::vector<SequenceInspection> sequences;
  for (const RequestHandle handle : core.Handles()) {
    const SequenceId id(handle);
    SequenceInspection& sequence = sequences.emplace_back();
    sequence.sequence_id = handle;
    const WorkerCore::Liveness request = core.Describe(handle);
    sequence.request_id = request.name;
    if (!scheduler.Contains(id)) {
      sequence.phase = request.delivers ? "delivering" : "waiting for its prompt";
      continue;
    }
    static constexpr const char* kPhases[] = {"waiting", "waiting for KV", "running"};
    sequence.phase = kPhases[static_cast<int>(scheduler.phase(id))];
    sequence.priority = scheduler.priority(id);
    sequence.tokens = static_cast<int32_t>(scheduler.tokens(id).size());
    if (!cache.Contains(id)) continue;
    sequence.committed = cache.committed(id);
    sequence.matched = cache.matched(id);
    for (const BlockId block : cache.BlockTable(id)) sequence.blocks.push_back(block.value());
    for (int32_t group = 1; group < cache.groups(); ++group) {
      std::vector<int32_t>& blocks = sequence.window_blocks.emplace_back();
      for (const BlockId block : cache.BlockTable(id, group)) blocks.push_back(block.value());
    }
  }
  return sequences;
}

}  // namespace baton
