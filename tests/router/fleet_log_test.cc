#include "router/fleet_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/router/worker_reports.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FleetLogTest : public ::testing::Test {
 protected:
  std::vector<std::string> TakeLines() { return std::exchange(lines_, {}); }

  ManualClock clock_;
  std::vector<std::string> lines_;
  FleetLog log_{&clock_, [this](FleetLog::Severity severity, const std::string& line) {
                  const bool warning = severity == FleetLog::Severity::kWarning;
                  lines_.push_back(absl::StrCat(warning ? "W " : "I ", line));
                }};
};

TEST_F(FleetLogTest, LogsJoiningAndLeavingWorkers) {
  WorkerReport report = Report("a", WorkerRole::kPrefill);
  report.pool_tokens = 4096;
  report.fingerprint = "KV type f16";
  report.backend = "cpu";
  report.protocol = {.oldest = 5, .newest = 6};
  log_.Changed({FleetChange::Kind::kJoined, report});
  log_.Changed({FleetChange::Kind::kLeft, report});
  log_.Changed({FleetChange::Kind::kExpired, report});
  log_.Refused("b", "b:1", "another model");
  EXPECT_THAT(
      TakeLines(),
      ElementsAre(
          "I prefill worker a at a:1 joined: model model, room for 4096 tokens of a sequence; "
          "backend cpu, protocol versions 5 to 6; fingerprint: KV type f16",
          "I prefill worker a at a:1 left",
          "W prefill worker a at a:1 is gone: no heartbeat came for --worker-expiry-ms",
          "W worker b at b:1 is refused: another model"));
}

TEST_F(FleetLogTest, LogsWhichRequestLostItsWorker) {
  log_.Lost("r", "a", absl::UnavailableError("connection reset"), "b");
  log_.Lost("r", "b", absl::UnavailableError("connection reset"), "");
  log_.Failed("r", absl::UnavailableError("no decode worker is ready"));
  EXPECT_THAT(TakeLines(),
              ElementsAre("W request r: worker a was lost (connection reset); it continues on b",
                          "W request r: worker b was lost (connection reset)",
                          "W request r failed: UNAVAILABLE: no decode worker is ready"));
}

TEST_F(FleetLogTest, TextFromPeersIsEscaped) {
  log_.Refused("a\x1b[2J\n", "h:1", "\xff");
  EXPECT_THAT(TakeLines(), ElementsAre("W worker a\\x1b[2J\\x0a at h:1 is refused: \\xff"));
}

TEST_F(FleetLogTest, AFloodIsCounted) {
  for (int i = 0; i < 1000; ++i) log_.Refused("a", "h:1", "no");
  EXPECT_EQ(TakeLines().size(), FleetLog::kMostAtOnce);
  clock_.AdvanceUs(1'000'000);
  for (int i = 0; i < 10; ++i) log_.Refused("a", "h:1", "no");
  EXPECT_THAT(TakeLines(),
              ElementsAre("W 950 lines like these were left out",
                          "W worker a at h:1 is refused: no", "W worker a at h:1 is refused: no"));
  clock_.AdvanceUs(1'000'000'000);
  for (int i = 0; i < 1000; ++i) log_.Refused("a", "h:1", "no");
  EXPECT_EQ(TakeLines().size(), FleetLog::kMostAtOnce + 1);
}

TEST_F(FleetLogTest, DifferentPoolSizesAreLoggedOnce) {
  std::vector<WorkerRecord> workers(3);
  workers[0].report = Report("a");
  workers[0].report.pool_tokens = 1000;
  workers[1].report = Report("b");
  workers[1].report.pool_tokens = 2001;
  workers[2].report = Report("p", WorkerRole::kPrefill);
  workers[2].report.pool_tokens = 100'000;
  log_.CompareRooms(workers);
  EXPECT_THAT(TakeLines(), IsEmpty());
  workers[1].report.pool_tokens = 2002;
  log_.CompareRooms(workers);
  log_.CompareRooms(workers);
  EXPECT_THAT(TakeLines(),
              ElementsAre("W decode workers' rooms differ: a holds 1000 tokens of a sequence, b "
                          "2002; requests without max_tokens prefer the larger (--kv-cache-mib)"));
  workers[0].report.pool_tokens = 2000;
  log_.CompareRooms(workers);
  workers[0].report.pool_tokens = 500;
  log_.CompareRooms(workers);
  EXPECT_EQ(TakeLines().size(), 1) << "the difference was gone in between";
}

}  // namespace
}  // namespace baton
