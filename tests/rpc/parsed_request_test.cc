#include "rpc/parsed_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "baton/v1/inference.pb.h"

namespace baton {
namespace {

ParsedRequest<v1::GenerateRequest> Parse(const std::string& bytes) {
  LimitProtobufLog();
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer buffer(&slice, 1);
  ParsedRequest<v1::GenerateRequest> parsed;
  EXPECT_TRUE(
      grpc::SerializationTraits<ParsedRequest<v1::GenerateRequest>>::Deserialize(&buffer, &parsed)
          .ok());
  return parsed;
}

TEST(ParsedRequest, IsTheMessageWhereTheBytesAreOne) {
  v1::GenerateRequest request;
  request.set_prompt("grüße");
  const auto parsed = Parse(request.SerializeAsString());
  EXPECT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.message.prompt(), "grüße");
}

TEST(ParsedRequest, NamesTheFieldWhoseTextIsNotUtf8) {
  LimitProtobufLog();
  v1::GenerateRequest request;
  request.mutable_messages()->add_messages()->set_content("\xff\xfe");
  const absl::Status status = Parse(request.SerializeAsString()).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("content is not UTF-8"));
}

TEST(ParsedRequest, SaysThatTheBytesAreNoMessage) {
  for (const char* bytes : {"\x12\x05"
                            "a",
                            "\xff", "\x12\xff\xff\xff\xff\x0f"}) {
    const absl::Status status = Parse(bytes).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("not a GenerateRequest"));
  }
}

TEST(LimitProtobufLog, WritesOneLineOfMany) {
  LimitProtobufLog();
  v1::GenerateRequest request;
  request.set_prompt("\xff\xfe");
  const std::string bytes = request.SerializeAsString();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(v1::GenerateRequest().ParseFromString(bytes));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

}  // namespace
}  // namespace baton
