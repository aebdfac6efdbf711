// Which models, fingerprints, backends and protocol versions a registry admits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "routing/worker_registry.h"
#include "tests/routing/registered_workers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(WorkerRegistryTest, AnotherModelIsRefusedByNameWhileTheFleetLives) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1, "smol")).ok());
  const absl::Status status = registry_.Heartbeat(Report("b", 2, "other"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smol"));
  registry_.Leave("a", Epoch(1));
  EXPECT_TRUE(registry_.Heartbeat(Report("b", 2, "other")).ok());
  EXPECT_EQ(registry_.fleet_model(), "other");
}

TEST_F(WorkerRegistryTest, APinnedFingerprintIsServedInAnyOrderOfArrival) {
  WorkerRegistry registry({.fingerprint = "KV f16"}, &clock_);
  WorkerReport other = Report("other", 1, "m");
  other.fingerprint = "KV int8";
  const absl::Status status = registry.Heartbeat(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("KV int8; this router serves only"));
  WorkerReport wanted = Report("wanted", 1, "m");
  wanted.fingerprint = "KV f16";
  EXPECT_TRUE(registry.Heartbeat(wanted).ok());
}

TEST_F(WorkerRegistryTest, APinnedModelIsServedByNameOrFingerprintAndNoOther) {
  for (const char* pinned : {"m", "Smol"}) {
    WorkerRegistry registry({.model = pinned}, &clock_);
    WorkerReport other = Report("other", 1, "x");
    other.model_name = "Large";
    const absl::Status status = registry.Heartbeat(other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker other has model \"Large\" with fingerprint x"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(pinned));
    EXPECT_TRUE(registry.workers().empty());
    WorkerReport wanted = Report("wanted", 1, "m");
    wanted.model_name = "Smol";
    EXPECT_TRUE(registry.Heartbeat(wanted).ok());
  }
}

TEST_F(WorkerRegistryTest, TheOnlyWorkerMayReturnWithAnotherModel) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1, "smol")).ok());
  clock_.AdvanceUs(2'000'000);
  EXPECT_TRUE(registry_.Heartbeat(Report("a", 2, "other")).ok());
  EXPECT_EQ(registry_.fleet_model(), "other");
}

TEST_F(WorkerRegistryTest, AnotherFingerprintIsRefusedUntilTheLastOfTheOldHasGone) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  ASSERT_TRUE(registry_.Heartbeat(Report("b", 1)).ok());
  WorkerReport newer = Report("c", 1);
  newer.fingerprint = "m-int8";
  for (const WorkerRole role : {WorkerRole::kDecode, WorkerRole::kPrefill, WorkerRole::kBoth}) {
    newer.role = role;
    const absl::Status status = registry_.Heartbeat(newer);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has m-int8; the fleet has m-f16"));
  }
  registry_.Leave("a", Epoch(1));
  EXPECT_FALSE(registry_.Heartbeat(newer).ok()) << "b is still registered";
  clock_.AdvanceUs(3'000'001);
  EXPECT_TRUE(registry_.Heartbeat(newer).ok());
  EXPECT_THAT(std::string(registry_.Heartbeat(Report("b", 1)).message()),
              HasSubstr("has m-f16; the fleet has m-int8"));
}

TEST_F(WorkerRegistryTest, ABackendThatNoTestHasConfirmedIsRefusedByName) {
  WorkerReport first = Report("a", 1);
  first.backend = "cpu";
  ASSERT_TRUE(registry_.Heartbeat(first).ok());
  WorkerReport other = Report("b", 1);
  other.backend = "cuda";
  const absl::Status status = registry_.Heartbeat(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has backend cuda, the fleet has cpu; no test has confirmed"));
  other.backend = "cpu";
  EXPECT_TRUE(registry_.Heartbeat(other).ok());
  other.backend = "cuda";
  EXPECT_THAT(std::string(registry_.Heartbeat(other).message()), HasSubstr("changed its"));
  registry_.Leave("a", Epoch(1));
  registry_.Leave("b", Epoch(1));
  other.epoch = Epoch(2);
  EXPECT_TRUE(registry_.Heartbeat(other).ok()) << "the last of the old backend has left";

  WorkerRegistry mixed({.model = "", .mixed_fingerprints = true}, &clock_);
  other.epoch = Epoch(1);
  ASSERT_TRUE(mixed.Heartbeat(first).ok());
  EXPECT_TRUE(mixed.Heartbeat(other).ok());
  EXPECT_THAT(mixed.SetSilent({mixed.workers()[0].number}), IsEmpty())
      << "the other worker cannot continue its answers";
}

TEST_F(WorkerRegistryTest, ABackendMustBeConfirmedWithEveryBackendOfTheFleet) {
  constexpr std::array<BackendPair, 2> kPairs = {{{"cpu", "cuda"}, {"cuda", "rocm"}}};
  WorkerRegistry registry({.model = "", .confirmed_backends = kPairs}, &clock_);
  WorkerReport a = Report("a", 1), b = Report("b", 1), c = Report("c", 1);
  a.backend = "cpu";
  b.backend = "cuda";
  c.backend = "rocm";
  ASSERT_TRUE(registry.Heartbeat(a).ok());
  ASSERT_TRUE(registry.Heartbeat(b).ok());
  EXPECT_THAT(std::string(registry.Heartbeat(c).message()),
              HasSubstr("has backend rocm, the fleet has cpu; no test has confirmed"));
  c.address = a.address;  // it takes a's place after a's silence
  clock_.AdvanceUs(2'500'000);
  ASSERT_TRUE(registry.Heartbeat(b).ok());
  EXPECT_TRUE(registry.Heartbeat(c).ok());
}

TEST_F(WorkerRegistryTest, AnyProtocolVersionsAreTakenButKeptWithinAnEpoch) {
  WorkerReport report = Report("a", 1);
  report.protocol = {.oldest = 5, .newest = 6};
  ASSERT_TRUE(registry_.Heartbeat(report).ok());
  WorkerReport newer = Report("b", 1);
  newer.protocol = {.oldest = 8, .newest = 9};
  EXPECT_TRUE(registry_.Heartbeat(newer).ok())
      << "it can serve, although no KV is transferred between them";
  newer.protocol = {.oldest = 8, .newest = 10};
  EXPECT_THAT(std::string(registry_.Heartbeat(newer).message()), HasSubstr("protocol versions"));
  EXPECT_EQ(registry_.SetSilent({registry_.workers()[0].number}).size(), 1u)
      << "b can continue its answers";
}

TEST_F(WorkerRegistryTest, TheOnlyWorkerMayReturnWithAnotherFingerprintButNotInTheSameEpoch) {
  ASSERT_TRUE(registry_.Heartbeat(Report("a", 1)).ok());
  clock_.AdvanceUs(2'000'000);
  WorkerReport newer = Report("a", 1);
  newer.fingerprint = "m-int8";
  EXPECT_THAT(std::string(registry_.Heartbeat(newer).message()), HasSubstr("fingerprint"));
  newer.epoch = Epoch(2);
  EXPECT_TRUE(registry_.Heartbeat(newer).ok());
}

TEST_F(WorkerRegistryTest, FingerprintsMayBeMixedIfConfigured) {
  WorkerRegistry registry({.model = "", .mixed_fingerprints = true}, &clock_);
  ASSERT_TRUE(registry.Heartbeat(Report("a", 1)).ok());
  WorkerReport other = Report("b", 1);
  other.fingerprint = "m-int8";
  EXPECT_TRUE(registry.Heartbeat(other).ok());
  EXPECT_TRUE(registry.Heartbeat(Report("a", 1)).ok());
  EXPECT_FALSE(registry.Heartbeat(Report("c", 1, "another model")).ok());
}

}  // namespace
}  // namespace baton
