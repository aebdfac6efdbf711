// Rules for worker pairs: which workers can continue each other's answers, and which may exchange
// KV.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "common/backend_pairs.h"
#include "common/protocol_range.h"
#include "routing/worker_registry.h"

namespace baton {

// True if both are equal for all functions below.
inline bool SameKind(const WorkerReport& a, const WorkerReport& b) {
  return a.fingerprint == b.fingerprint && a.backend == b.backend && a.protocol == b.protocol &&
         a.kv_groups == b.kv_groups && (a.kv_groups == 1 || a.block_size == b.block_size);
}

// True if the worker's answers have the same bits as those of workers with this fingerprint and
// backend. Then one worker can continue another's answer.
inline bool SameAnswers(std::string_view fingerprint, std::string_view backend,
                        const WorkerReport& worker) {
  return worker.fingerprint == fingerprint && IsConfirmedPair(worker.backend, backend);
}
inline bool SameAnswers(const WorkerReport& a, const WorkerReport& b) {
  return SameAnswers(a.fingerprint, a.backend, b);
}

// True if KV of `from` may be sent to `to`. With several KV groups, the receiver refuses a sender
// with smaller blocks: the start of a window would be in the middle of a block.
inline bool MayHandOver(const WorkerReport& from, const WorkerReport& to) {
  const bool blocks_fit =
      (from.kv_groups == 1 && to.kv_groups == 1) || from.block_size >= to.block_size;
  return blocks_fit && SameAnswers(from, to) && HaveCommonVersion(from.protocol, to.protocol);
}

}  // namespace baton
