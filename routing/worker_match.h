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
  return a.fingerprint == b.fingerprint && a.backend == b.backend && a.protocol == b.protocol;
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

// True if KV of one worker may be sent to the other.
inline bool MayHandOver(const WorkerReport& a, const WorkerReport& b) {
  return SameAnswers(a, b) && HaveCommonVersion(a.protocol, b.protocol);
}

}  // namespace baton
