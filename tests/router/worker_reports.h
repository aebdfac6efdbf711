// Worker reports of one fleet, for tests.
#pragma once

#include <string>

#include "routing/worker_registry.h"

namespace baton {

inline WorkerReport Report(const std::string& id, WorkerRole role = WorkerRole::kDecode) {
  WorkerReport report;
  report.id = id;
  report.address = id + ":1";
  report.role = role;
  report.epoch = Epoch(1);
  report.model = "model";
  report.fingerprint = "fingerprint";
  report.block_size = 16;
  report.available_blocks = 1000;
  return report;
}

}  // namespace baton
