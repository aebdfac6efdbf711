#include "kvtransfer/protocol/fingerprint.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

TEST(KvFingerprint, EqualOnesAreCompatible) {
  EXPECT_TRUE(CheckCompatible(MakeFingerprint({}), MakeFingerprint({})).ok());
}

TEST(KvFingerprint, NamesTheFirstFieldThatDiffersAndBothValues) {
  KvFingerprint theirs = MakeFingerprint({});
  theirs.rope = "none";
  EXPECT_EQ(CheckCompatible(MakeFingerprint({}), theirs).message(),
            "rope: ours neox theta=10000, theirs none");
  theirs.kv_type = "f32";
  const absl::Status status = CheckCompatible(MakeFingerprint({}), theirs);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "kv_type: ours f16, theirs f32");
}

TEST(KvFingerprint, ProtocolVersionsAreComparedAsRanges) {
  const auto [oldest, newest] = kTransferProtocol;
  const auto check = [](uint32_t from, uint32_t to) {
    KvFingerprint theirs = MakeFingerprint({});
    theirs.protocol = {.oldest = from, .newest = to};
    return CheckCompatible(MakeFingerprint({}), theirs);
  };
  EXPECT_TRUE(check(newest, newest + 1).ok());
  EXPECT_TRUE(check(newest, newest + 9).ok());
  EXPECT_TRUE(check(oldest - 1, oldest).ok());
  EXPECT_EQ(check(newest + 1, newest + 2).message(),
            "protocol_version: ours 5 to 6, theirs 7 to 8");
  EXPECT_EQ(check(oldest - 1, oldest - 1).message(), "protocol_version: ours 5 to 6, theirs 4");
}

TEST(KvFingerprint, EqualNumericsOfOtherBackendsNeedATest) {
  KvFingerprint theirs = MakeFingerprint({});
  theirs.backend = "cuda";
  const absl::Status status = CheckCompatible(MakeFingerprint({}), theirs);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "backend: ours cpu, theirs cuda; no test has confirmed that their bits are equal");
  theirs.numerics = "r2";
  EXPECT_EQ(CheckCompatible(MakeFingerprint({}), theirs).message(), "numerics: ours r1, theirs r2");
}

TEST(KvFingerprint, ARevisionIsANameOfNumerics) {
  for (const uint32_t revision : {1u, 2u, 10u, UINT32_MAX}) {
    EXPECT_EQ(NumericsRevision(NumericsOfRevision(revision)), revision);
  }
  EXPECT_EQ(NumericsOfRevision(1), "r1");
  for (const char* name : {"", "r", "r0", "1", "rx", "r1x", "r+1", "r 1", "r01", "r4294967296"}) {
    EXPECT_EQ(NumericsRevision(name), 0u) << name;
  }
}

TEST(KvFingerprint, PoolsMayHaveDifferentBlockSizesAndLayouts) {
  for (const TestShape& shape : {TestShape{.layout = KvLayoutKind::kLayerMajor},
                                 TestShape{.block_size = 1}, TestShape{.block_size = 128}}) {
    EXPECT_TRUE(CheckCompatible(MakeFingerprint({}), MakeFingerprint(shape)).ok());
  }
}

TEST(KvFingerprint, AnImpossibleGeometryIsNamed) {
  KvFingerprint theirs = MakeFingerprint({});
  for (const int32_t block_size : {INT32_MIN, -1, 0, 3, 129, 256, INT32_MAX}) {
    theirs.block_size = block_size;
    const absl::Status status = CheckCompatible(MakeFingerprint({}), theirs);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::to_string(block_size)));
    EXPECT_FALSE(GeometryOf(theirs).ok());
  }
  theirs = MakeFingerprint({});
  theirs.layout = "";
  EXPECT_EQ(CheckCompatible(MakeFingerprint({}), theirs).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KvFingerprint, AModelWithOneGroupNamesNone) {
  const KvFingerprint one = MakeFingerprint({});
  EXPECT_EQ(one.groups, "");
  EXPECT_EQ(one.protocol, kTransferProtocol);
}

TEST(KvFingerprint, EveryGroupIsNamedAndCompared) {
  const TestShape shape{.groups = "wwfwvf"};
  const KvFingerprint ours = MakeFingerprint(shape);
  EXPECT_EQ(ours.groups,
            "full layers 2,5 heads 2 dims 8+8; window 24 layers 0-1,3 heads 1 dims 12+12; "
            "window 12 layers 4 heads 1 dims 12");
  EXPECT_TRUE(CheckCompatible(ours, ours).ok());
  TestShape other = shape;
  other.window = 32;
  EXPECT_THAT(std::string(CheckCompatible(ours, MakeFingerprint(other)).message()),
              ::testing::StartsWith("groups: ours full layers 2,5"));
  other = shape;
  other.groups = "wfwwvf";
  EXPECT_FALSE(CheckCompatible(ours, MakeFingerprint(other)).ok());
}

// Neither build receives anything that it cannot read.
TEST(KvFingerprint, BuildsBeforeGroupsAndModelsWithWindowsRefuseEachOtherByVersion) {
  const KvFingerprint old = MakeFingerprint({});
  KvFingerprint windows = MakeFingerprint({.groups = "fwf"});
  EXPECT_EQ(CheckCompatible(old, windows).message(), "protocol_version: ours 5 to 6, theirs 7");
  EXPECT_EQ(CheckCompatible(windows, old).message(), "protocol_version: ours 7, theirs 5 to 6");
}

}  // namespace
}  // namespace baton
