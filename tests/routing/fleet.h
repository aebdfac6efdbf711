// A fleet for tests of policies.
#pragma once

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "routing/routing_policy.h"

namespace baton {

struct Fleet {
  WorkerRecord& Add(WorkerRole role, const std::string& fingerprint = "f") {
    WorkerRecord record;
    record.number = WorkerNumber(static_cast<uint32_t>(workers.size() + 1));
    record.report.id = "worker-" + std::to_string(workers.size() + 1);
    record.report.role = role;
    record.report.fingerprint = fingerprint;
    record.report.backend = "cpu";
    record.report.protocol = {.oldest = 5, .newest = 6};
    record.report.pool_layout = "block-major";
    record.report.block_size = 16;
    record.report.available_blocks = 1000;
    record.report.kv_bytes_per_token = 23'040;
    workers.push_back(record);
    return workers.back();
  }
  WorkerRecord& At(WorkerNumber number) {
    for (WorkerRecord& worker : workers) {
      if (worker.number == number) return worker;
    }
    throw std::out_of_range("no such worker");
  }
  void Remove(WorkerNumber number) {
    std::erase_if(workers, [number](const auto& worker) { return worker.number == number; });
  }
  // Counts a request as a router does when it sends one.
  void Send(const RoutePlan& plan) {
    ++At(plan.decode).active;
    ++At(plan.decode).assigned;
    if (plan.prefill) ++At(*plan.prefill).active;
    if (plan.prefill) ++At(*plan.prefill).assigned;
    WorkerRecord& prefiller = At(plan.prefiller());
    if (prefiller.prompts.empty()) prefiller.prefilling_since_us = now_us;
    prefiller.prompts.push_back(plan.work);
    prefiller.pending.tokens += plan.work.tokens;
    prefiller.pending.us += plan.work.us;
  }
  FleetView View() const { return {workers, &speeds, now_us}; }

  std::vector<WorkerRecord> workers;
  ThroughputModel speeds;
  int64_t now_us = 1'000'000;
};

// Returns true if the rules allow KV transfer from `a` to `b`.
inline bool MaySend(const WorkerRecord& a, const WorkerRecord& b) {
  if (a.report.kv_groups > 1 && a.report.block_size < b.report.block_size) return false;
  bool common = false;
  for (uint32_t version = 0; version < 10; ++version) {
    const auto speaks = [version](const WorkerRecord& worker) {
      return worker.report.protocol.oldest <= version && version <= worker.report.protocol.newest;
    };
    common = common || (speaks(a) && speaks(b));
  }
  return common && a.report.fingerprint == b.report.fingerprint &&
         a.report.kv_groups == b.report.kv_groups && a.report.backend == b.report.backend;
}

// A random fleet of up to `most` workers, with random defects.
inline Fleet RandomFleet(std::mt19937_64& random, size_t most) {
  Fleet fleet;
  const size_t count = random() % (most + 1);
  const int32_t kv_groups = random() % 3 == 0 ? 2 : 1;
  for (size_t i = 0; i < count; ++i) {
    WorkerRecord& worker =
        fleet.Add(static_cast<WorkerRole>(random() % 3), random() % 4 == 0 ? "g" : "f");
    if (random() % 5 == 0) worker.report.backend = "cuda";
    worker.report.protocol.oldest = 5 + static_cast<uint32_t>(random() % 5 == 0);
    worker.report.protocol.newest = 5 + static_cast<uint32_t>(random() % 2);
    worker.report.kv_groups = kv_groups;
    worker.report.block_size = 8 << (random() % 3);
    worker.report.draining = random() % 8 == 0;
    worker.unreachable = random() % 8 == 0;
    worker.report.available_blocks = random() % 6 == 0 ? 3 : 2000;
    worker.active = static_cast<int32_t>(random() % 20);
    worker.others = static_cast<int32_t>(random() % 3);
    worker.assigned = static_cast<int64_t>(random() % 100);
    for (uint64_t prompts = random() % 3; prompts > 0; --prompts) {
      const PrefillWork work{.tokens = 1 + static_cast<int64_t>(random() % 2000),
                             .us = static_cast<int64_t>(random() % 500'000),
                             .prefix = random() % 3};
      worker.prompts.push_back(work);
      worker.pending.tokens += work.tokens;
      worker.pending.us += work.us;
    }
    worker.prefilling_since_us = fleet.now_us - static_cast<int64_t>(random() % 300'000);
    for (uint64_t requests = random() % 10; requests > 0; --requests) {
      FinishedRequest finished{.decode = worker.number, .prefill = std::nullopt};
      finished.computed_tokens = 100 + static_cast<int64_t>(random() % 3000);
      finished.prefill_us = 1 + static_cast<int64_t>(random() % 1'000'000);
      finished.completion_tokens = static_cast<int64_t>(random() % 300);
      finished.inter_token_us = static_cast<int64_t>(random() % 50'000);
      finished.decode_batch = 1 + static_cast<int64_t>(random() % 20);
      fleet.speeds.Learn(finished);
    }
  }
  return fleet;
}

inline RoutingInput RandomInput(std::mt19937_64& random, const Fleet& fleet) {
  RoutingInput input;
  input.prompt_tokens = 1 + static_cast<int32_t>(random() % 3000);
  input.placement = static_cast<Placement>(random() % 3);
  input.affinity_key = random() % 50;
  input.held_prefix = random() % 3;
  for (const WorkerRecord& worker : fleet.workers) {
    if (random() % 2 == 0) {
      // Hints may exceed the length of the prompt.
      input.cached_tokens[worker.number] =
          static_cast<int32_t>(random() % (static_cast<uint64_t>(input.prompt_tokens) + 32));
    }
    if (random() % 6 == 0) input.excluded.insert(worker.number);
  }
  return input;
}

}  // namespace baton
