#include "router/router_core.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(RouterCore, EveryTurnAsksAnotherWorkerForTheModel) {
  const SystemClock clock;
  RouterCore core(RouterOptions(), &clock);
  EXPECT_EQ(core.ModelSource(0), "");
  for (const char* name : {"a", "b"}) {
    WorkerReport report;
    report.id = name;
    report.address = std::string(name) + ":1";
    report.epoch = Epoch(1);
    report.model = "model";
    report.fingerprint = "fingerprint";
    report.block_size = 16;
    ASSERT_TRUE(core.Heartbeat(report).ok());
  }
  EXPECT_EQ(core.ModelSource(0), "a:1");
  EXPECT_EQ(core.ModelSource(1), "b:1");
  EXPECT_EQ(core.ModelSource(2), "a:1");
}

}  // namespace
}  // namespace baton
