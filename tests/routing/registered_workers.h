// A worker registry with a manual clock, and reports of workers for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "routing/worker_registry.h"

namespace baton {

class WorkerRegistryTest : public ::testing::Test {
 protected:
  static WorkerReport Report(const std::string& id, uint64_t epoch,
                             const std::string& model = "m") {
    WorkerReport report;
    report.id = id;
    report.address = id + ":1";
    report.epoch = Epoch(epoch);
    report.model = model;
    report.fingerprint = model + "-f16";
    return report;
  }
  WorkerNumber NumberOf(const std::string& id) {
    for (const WorkerRecord& worker : registry_.workers()) {
      if (worker.report.id == id) return worker.number;
    }
    return WorkerNumber(0);
  }

  ManualClock clock_;
  WorkerRegistry registry_{{.model = "", .expiry_us = 3'000'000, .max_workers = 3}, &clock_};
};

}  // namespace baton
