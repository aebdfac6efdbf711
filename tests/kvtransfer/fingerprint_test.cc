#include "kvtransfer/protocol/fingerprint.h"

#include <functional>
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

TEST(KvFingerprint, SpeaksWithTheNextProtocolVersionButNotTheOneAfter) {
  KvFingerprint theirs = MakeFingerprint({});
  theirs.protocol_version = kTransferProtocolVersion + 1;
  EXPECT_TRUE(CheckCompatible(MakeFingerprint({}), theirs).ok());
  theirs.protocol_version = kTransferProtocolVersion + 2;
  EXPECT_FALSE(CheckCompatible(MakeFingerprint({}), theirs).ok());
  theirs.protocol_version = kOldestTransferProtocolVersion - 1;
  EXPECT_FALSE(CheckCompatible(MakeFingerprint({}), theirs).ok());
}

TEST(KvFingerprint, PoolsMayBeCutDifferently) {
  for (const TestShape& shape : {TestShape{.layout = KvLayoutKind::kLayerMajor},
                                 TestShape{.block_size = 1}, TestShape{.block_size = 128}}) {
    EXPECT_TRUE(CheckCompatible(MakeFingerprint({}), MakeFingerprint(shape)).ok());
  }
}

TEST(KvFingerprint, AGeometryThatCannotBeIsNamed) {
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

TEST(KvFingerprint, ToStringTellsAllFieldsApartThatMustBeEqual) {
  const std::string base = MakeFingerprint({}).ToString();
  const std::function<void(KvFingerprint&)> changes[] = {
      [](KvFingerprint& f) { f.protocol_version = 9; },
      [](KvFingerprint& f) { f.model = "x"; },
      [](KvFingerprint& f) { f.backend = "x"; },
      [](KvFingerprint& f) { f.numerics_revision = 9; },
      [](KvFingerprint& f) { f.kv_type = "x"; },
      [](KvFingerprint& f) { f.layers = 9; },
      [](KvFingerprint& f) { f.kv_heads = 9; },
      [](KvFingerprint& f) { f.head_dim = 9; },
      [](KvFingerprint& f) { f.rope = "x"; }};
  for (const auto& change : changes) {
    KvFingerprint other = MakeFingerprint({});
    change(other);
    EXPECT_NE(other.ToString(), base);
    EXPECT_FALSE(other == MakeFingerprint({}));
  }
  EXPECT_EQ(MakeFingerprint({.layout = KvLayoutKind::kLayerMajor, .block_size = 32}).ToString(),
            base);
}

}  // namespace
}  // namespace baton
