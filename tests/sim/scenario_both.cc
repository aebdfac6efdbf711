// Fleets of workers with both roles and small pools. Such workers hold blocks for KV from each
// other, and may then lack room for the prompts that they compute for each other.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/scenario.h"

namespace baton {

void GiveBothRoles(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "both roles");
  if (!random.OneIn(3)) scenario.workers.resize(2);  // they have only each other
  for (SimWorker::Options& worker : scenario.workers) {
    SimEngineOptions& engine = worker.engine;
    worker.role = WorkerRole::kBoth;
    engine.kv_blocks = LeastBlocks(engine) + static_cast<int32_t>(random.Below(5));
    engine.max_running = std::max(engine.max_running, 4);
    engine.step_us = std::min<int64_t>(engine.step_us, 500);
  }
  scenario.router.routing.local_prefill_tokens = 2;
}

void AddRequestsForBoth(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "requests for both roles");
  // At once, most requests are opened before the first of them is prefilled.
  const int64_t span_us = random.OneIn(3) ? 20 * kMs : random.Between(10, 2000);
  for (uint64_t more = 2 + random.Below(9); more > 0; --more) {
    const uint64_t number = scenario.requests.size() + 1;
    const auto length = static_cast<int32_t>(random.Between(20, kLongestPrompt));
    ScenarioRequest request = DrawRequest(random, number, length, span_us);
    if (!random.OneIn(3)) request.request.placement = Placement::kRemote;
    scenario.requests.push_back(std::move(request));
  }
}

void DrawFlips(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "flips");
  // Without these conditions, the last pair that fits could lose a role.
  const bool alike = std::all_of(scenario.workers.begin(), scenario.workers.end(),
                                 [](const SimWorker::Options& worker) {
                                   return worker.knows_chunks && worker.engine.model.window == 0;
                                 });
  if (!scenario.faults.empty() || !alike || random.OneIn(3)) return;
  const int64_t span_us = random.Between(2, 80) * kMs;
  for (size_t i = 1; i < scenario.workers.size(); ++i) {
    for (uint64_t count = random.Below(8); count > 0; --count) {
      scenario.flips.push_back({.at_us = kFirstRequestUs + random.Between(0, span_us),
                                .node = kFirstWorkerNode + static_cast<int32_t>(i),
                                .role = static_cast<WorkerRole>(random.Below(3))});
    }
  }
}

std::string DescribeFlips(const Scenario& scenario) {
  static constexpr const char* kRoles[] = {"prefill", "decode", "both"};
  std::string text;
  for (const ScenarioFlip& flip : scenario.flips) {
    absl::StrAppend(&text, "  node ", flip.node, " gets the role ",
                    kRoles[static_cast<int>(flip.role)], " at ", flip.at_us, " us\n");
  }
  return text;
}

}  // namespace baton
