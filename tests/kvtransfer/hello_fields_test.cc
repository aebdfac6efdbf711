#include "kvtransfer/protocol/hello_fields.h"

#include <span>
#include <string>

#include "common/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Encode(const HelloFrame& hello) {
  FieldWriter writer;
  WriteHello(writer, hello);
  return writer.out();
}

absl::StatusOr<HelloFrame> Decode(const std::string& body) {
  FieldReader reader("Hello", std::as_bytes(std::span(body.data(), body.size())));
  HelloFrame hello;
  ReadHello(reader, hello);
  RETURN_IF_ERROR(reader.Finish());
  return hello;
}

TEST(HelloFields, AnUnsupportedVersionIsReadableWithAnyFieldsAfterIt) {
  HelloFrame hello{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "n"};
  std::string body = Encode(hello);
  for (const char version : {9, 4, 0}) {
    body[0] = version;
    const auto read = Decode(body.substr(0, 4) + "something new");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->fingerprint.protocol.newest, static_cast<uint32_t>(version));
    EXPECT_FALSE(CheckCompatible(hello.fingerprint, read->fingerprint).ok());
  }
  body[0] = 9;
  EXPECT_EQ(Decode(body.substr(0, 4) + "something new")->fingerprint.protocol,
            (ProtocolRange{9, 9}));
  EXPECT_FALSE(Decode(body.substr(0, 3)).ok());
  body[0] = 6;
  EXPECT_FALSE(Decode(body.substr(0, 4) + "something new").ok());
}

// The fields of a Hello as version 6 writes and reads them.
TEST(HelloFields, AnOrdinaryHelloHasTheBytesOfBuildsBeforeRangesAndNames) {
  const KvFingerprint fingerprint = MakeFingerprint({});
  std::string body;
  const auto number = [&](auto value) {
    for (size_t i = 0; i < sizeof(value); ++i) {
      body.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  };
  const auto text = [&](const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    body += value;
  };
  number(uint32_t{6});
  for (const char* value : {"0123abcd", "cpu", "f16", "block-major", "neox theta=10000", "n"}) {
    text(value);
  }
  number(uint32_t{1});  // numerics revision
  for (const int32_t value :
       {fingerprint.block_size, fingerprint.layers, fingerprint.kv_heads, fingerprint.head_dim}) {
    number(value);
  }
  number(uint64_t{7});
  const HelloFrame hello{.fingerprint = fingerprint, .epoch = Epoch(7), .node = "n"};
  EXPECT_EQ(Encode(hello), body);
  EXPECT_EQ(*Decode(body), hello);
  body[0] = 5;
  EXPECT_EQ(Decode(body)->fingerprint.protocol, (ProtocolRange{4, 5}));
  body[0] = 7;
  EXPECT_EQ(Decode(body)->fingerprint.protocol, (ProtocolRange{6, 7}));
}

TEST(HelloFields, AHelloCarriesAnyRangeAndAnyNumerics) {
  HelloFrame hello{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "n"};
  for (const ProtocolRange range : {ProtocolRange{6, 6}, {5, 6}, {5, 5}, {5, 7}, {6, 9}, {8, 9}}) {
    for (const char* numerics : {"r1", "r2", "cuda-half", ""}) {
      hello.fingerprint.protocol = range;
      hello.fingerprint.numerics = numerics;
      const auto read = Decode(Encode(hello));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, hello) << range.ToString() << " " << numerics;
    }
  }
}

TEST(HelloFields, AfterTheHelloOfALaterVersionAnythingMayFollow) {
  HelloFrame hello{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "n"};
  hello.fingerprint.protocol = {.oldest = 5, .newest = 8};
  for (const uint32_t oldest : {5, 7}) {  // 7 is what newest 8 implies
    hello.fingerprint.protocol.oldest = oldest;
    // If "more" were read as the groups' text, its length would exceed the limit. Then only the
    // Hello's version would be known.
    const auto read = Decode(Encode(hello) + "more");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, hello) << oldest;
  }
  // A Hello without the groups' text, as a build before this rule would write it.
  const std::string body = Encode(hello);
  EXPECT_EQ(body.substr(body.size() - 4), std::string(4, '\0'));
  EXPECT_EQ(*Decode(body.substr(0, body.size() - 4)), hello);
  hello.fingerprint.protocol = {.oldest = 6, .newest = 6};
  EXPECT_FALSE(Decode(Encode(hello) + "more").ok());
}

TEST(HelloFields, FingerprintStringsHaveALimit) {
  KvFingerprint fingerprint = MakeFingerprint({});
  EXPECT_TRUE(CheckFingerprintFits(fingerprint).ok());
  fingerprint.rope = std::string(kMaxFingerprintText + 1, 'r');
  EXPECT_THAT(std::string(CheckFingerprintFits(fingerprint).message()), HasSubstr("rope"));
}

TEST(HelloFields, GroupsAreSentIfThereAreSeveral) {
  const HelloFrame hello{
      .fingerprint = MakeFingerprint({.groups = "fwf"}), .epoch = Epoch(1), .node = "n"};
  const std::string body = Encode(hello);
  const auto read = Decode(body);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, hello);
  EXPECT_EQ(read->fingerprint.protocol, (ProtocolRange{7, 7}));
  for (size_t cut = 1; cut < hello.fingerprint.groups.size() + 4; ++cut) {
    EXPECT_FALSE(Decode(body.substr(0, body.size() - cut)).ok()) << cut;
  }
  EXPECT_FALSE(Decode(body + '\0').ok());
  // Without groups it is a Hello that no peer with windows accepts.
  const auto none = Decode(body.substr(0, body.size() - hello.fingerprint.groups.size() - 4));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(std::string(CheckCompatible(hello.fingerprint, none->fingerprint).message()),
              HasSubstr("groups: ours full"));
}

}  // namespace
}  // namespace baton
