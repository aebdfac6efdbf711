// What the tests of the router's core share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cache/index/kv_event.h"
#include "common/clock.h"
#include "router/router_core.h"

namespace baton {

// Feeds the index a worker's stream up to its only batch, which stores `hashes`.
inline void Tell(RouterCore& core, WorkerNumber worker, std::vector<Hash128> hashes) {
  const KvEvent event{.kind = KvEvent::Kind::kStored, .parent = {}, .hashes = std::move(hashes)};
  const std::string bytes = EncodeKvEvents({&event, event.hashes.empty() ? 0u : 1u});
  ASSERT_TRUE(core.index().Take(worker, {.epoch = Epoch(1), .sequence = 1, .events = {}}).ok());
  ASSERT_TRUE(core.index().Take(worker, {.epoch = Epoch(1), .sequence = 1, .events = bytes}).ok());
}

inline std::string DecodeWorkerOf(RouterCore& core, const RouteQuestion& question) {
  const absl::StatusOr<Route> route = core.ChooseRoute(question);
  if (!route.ok()) return route.status().ToString();
  core.PrefillDone(route->plan);
  core.WorkerDone(route->plan.decode);
  return route->decode_id;
}

class RouterCoreTest : public testing::Test {
 protected:
  RouterCoreTest() : core_(RouterOptions(), &clock_) {}
  WorkerNumber Number(size_t i) { return core_.Workers().at(i).number; }

  ManualClock clock_;
  RouterCore core_;
};

}  // namespace baton
