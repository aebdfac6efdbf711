#include "rpc/raw_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "baton/v1/inference.pb.h"

namespace baton {
namespace {

absl::Status Parse(const std::string& bytes, v1::GenerateRequest& request) {
  LimitProtobufLog();
  const grpc::Slice slice(bytes);
  return ParseRaw(grpc::ByteBuffer(&slice, 1), request);
}

TEST(ParseRaw, GivesTheMessageWhereTheBytesAreOne) {
  v1::GenerateRequest request;
  request.set_prompt("grüße");
  v1::GenerateRequest parsed;
  EXPECT_EQ(Parse(request.SerializeAsString(), parsed), absl::OkStatus());
  EXPECT_EQ(parsed.prompt(), "grüße");
}

TEST(ParseRaw, LeavesTheBytesAsTheyWere) {
  LimitProtobufLog();
  v1::GenerateRequest request;
  request.set_prompt(std::string(100'000, 'a'));
  const grpc::ByteBuffer bytes = ToRaw(request);
  for (int i = 0; i < 2; ++i) {
    v1::GenerateRequest parsed;
    EXPECT_EQ(ParseRaw(bytes, parsed), absl::OkStatus());
    EXPECT_EQ(parsed.prompt(), request.prompt());
  }
}

TEST(ParseRaw, NamesTheFieldWhoseTextIsNotUtf8) {
  LimitProtobufLog();
  v1::GenerateRequest request;
  request.mutable_messages()->add_messages()->set_content("\xff\xfe");
  v1::GenerateRequest parsed;
  const absl::Status status = Parse(request.SerializeAsString(), parsed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("content is not UTF-8"));
}

TEST(ParseRaw, SaysThatTheBytesAreNoMessage) {
  for (const char* bytes : {"\x12\x05"
                            "a",
                            "\xff", "\x12\xff\xff\xff\xff\x0f"}) {
    v1::GenerateRequest parsed;
    const absl::Status status = Parse(bytes, parsed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("not a GenerateRequest"));
  }
}

TEST(ToRaw, GivesWhatTheMessageSerialisesTo) {
  v1::GenerateResponse response;
  EXPECT_EQ(ToRaw(response).Length(), 0u);
  response.mutable_started()->set_request_id("a");
  grpc::Slice slice;
  ASSERT_TRUE(ToRaw(response).DumpToSingleSlice(&slice).ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(slice.begin()), slice.size()),
            response.SerializeAsString());
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
