// Which workers may stand in for each other, and which may exchange KV.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "common/backend_pairs.h"
#include "common/protocol_range.h"
#include "routing/worker_registry.h"

namespace baton {

// Equal in everything that the functions below look at: what holds for one holds for the other.
inline bool SameKind(const WorkerReport& a, const WorkerReport& b) {
  return a.fingerprint == b.fingerprint && a.backend == b.backend && a.protocol == b.protocol;
}

// Its answers have the bits of workers with this fingerprint and backend: one goes on where another
// stopped.
inline bool SameAnswers(std::string_view fingerprint, std::string_view backend,
                        const WorkerReport& worker) {
  return worker.fingerprint == fingerprint && IsConfirmedPair(worker.backend, backend);
}
inline bool SameAnswers(const WorkerReport& a, const WorkerReport& b) {
  return SameAnswers(a.fingerprint, a.backend, b);
}

// KV of one may go to the other.
inline bool MayHandOver(const WorkerReport& a, const WorkerReport& b) {
  return SameAnswers(a, b) && HaveCommonVersion(a.protocol, b.protocol);
}

}  // namespace baton
