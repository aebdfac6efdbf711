#include "worker_rpc/engine_call.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/e2e/fake_engine.h"

namespace baton {
namespace {

class SilentSink final : public PullSink {
 public:
  void OnTicket(const TransferTicket&) override {}
  void OnDone(absl::StatusOr<PullResult>) override {}
};

TEST(EngineCall, ACancellationReachesTheEngineBeforeAndAfterItNamedTheRequest) {
  for (const bool before : {true, false}) {
    FakeEngine engine(1, {});
    EngineCall call(&engine);
    if (before) call.Cancel();
    call.Started(engine.PullPrefix({}, std::make_shared<SilentSink>()));
    if (!before) {
      EXPECT_EQ(engine.live_pull_count(), 1u);
      call.Cancel();
    }
    EXPECT_EQ(engine.live_pull_count(), 0u) << "cancelled before: " << before;
    EXPECT_EQ(engine.cancelled_count(), 1u);
  }
}

TEST(EngineCall, WithoutACancellationTheEngineCancelsNothing) {
  FakeEngine engine(1, {});
  EngineCall call(&engine);
  call.Started(engine.PullPrefix({}, std::make_shared<SilentSink>()));
  EXPECT_EQ(engine.cancelled_count(), 0u);
}

}  // namespace
}  // namespace baton
