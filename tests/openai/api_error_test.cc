#include "openai/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error_details.h"
#include "common/prompt_chunks.h"
#include "common/request_check.h"
#include "text/chat_message.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(ApiError, EveryStatusHasACodeATypeAndAnHttpStatus) {
  const struct {
    absl::Status status;
    int http;
    const char* type;
    const char* code;
  } cases[] = {
      {absl::InvalidArgumentError("m"), 400, "invalid_request_error", ""},
      {absl::OutOfRangeError("m"), 400, "invalid_request_error", ""},
      {absl::FailedPreconditionError("m"), 400, "invalid_request_error", ""},
      {absl::UnauthenticatedError("m"), 401, "invalid_request_error", "invalid_api_key"},
      {absl::PermissionDeniedError("m"), 403, "invalid_request_error", "permission_denied"},
      {absl::NotFoundError("m"), 404, "invalid_request_error", "model_not_found"},
      {absl::ResourceExhaustedError("m"), 503, "server_error", "overloaded"},
      {absl::UnavailableError("m"), 503, "server_error", "unavailable"},
      {absl::DeadlineExceededError("m"), 504, "timeout_error", "timeout"},
      {absl::CancelledError("m"), 499, "invalid_request_error", "cancelled"},
      {absl::UnimplementedError("m"), 501, "invalid_request_error", "not_implemented"},
      {absl::InternalError("m"), 500, "server_error", "internal_error"},
      {absl::UnknownError("m"), 500, "server_error", "internal_error"},
  };
  for (const auto& [status, http, type, code] : cases) {
    const ApiError error = ApiErrorOf(status);
    EXPECT_EQ(error.status, http) << status;
    EXPECT_EQ(error.message, "m");
    EXPECT_EQ(error.type, type) << status;
    EXPECT_EQ(error.code, code) << status;
    EXPECT_EQ(error.param, "");
    EXPECT_EQ(error.retry_after_s.has_value(), http == 503) << status;
    EXPECT_EQ(error.should_retry, http != 504) << "clients retry by themselves";
  }
}

TEST(ApiError, ATenantsLimitIsNotTheLoad) {
  absl::Status status = absl::ResourceExhaustedError("m");
  SetTenantLimit(status);
  const ApiError error = ApiErrorOf(status);
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_TRUE(error.retry_after_s.has_value());
}

TEST(ApiError, TheRetryTimeIsThatOfTheRefusalWithinWhatClientsObey) {
  const auto seconds = [](int64_t ms) {
    absl::Status status = absl::ResourceExhaustedError("m");
    SetRetryAfterMs(status, ms);
    return *ApiErrorOf(status).retry_after_s;
  };
  EXPECT_EQ(seconds(1), 1);
  EXPECT_EQ(seconds(1000), 1);
  EXPECT_EQ(seconds(1001), 2);
  EXPECT_EQ(seconds(-5), 1);
  EXPECT_EQ(seconds(10'000'000), 60);
}

TEST(ApiError, TheParamIsTheFieldThatTheStatusOrItsMessageNames) {
  absl::Status named = absl::InvalidArgumentError("\"messages[0].content\" must be a string");
  SetErrorParam(named, "messages[0].content");
  EXPECT_EQ(ApiErrorOf(named).param, "messages[0].content");
  EXPECT_EQ(ApiErrorOf(CheckChoices(17)).param, "n");
  const ChunkedText parts = {
      .system = {}, .chunks = {PromptPart("a"), PromptPart("")}, .question = PromptPart("q")};
  EXPECT_EQ(ApiErrorOf(CheckPartsNotEmpty(parts)).param, "chunks[1]");
  EXPECT_EQ(ApiErrorOf(CheckPartsNotEmpty(parts)).code, "");
  EXPECT_EQ(ApiErrorOf(absl::InvalidArgumentError("part of it")).param, "");
  EXPECT_EQ(ApiErrorOf(absl::InvalidArgumentError("no field")).param, "");
  const ChatMessage wrong = {.role = "robot", .content = "a", .name = std::nullopt};
  EXPECT_EQ(ApiErrorOf(ValidateMessages({}, {})).param, "messages");
  EXPECT_EQ(ApiErrorOf(ValidateMessages({&wrong, 1}, {})).param, "messages");
}

TEST(ApiError, APromptBeyondTheContextHasOpenAisCode) {
  const std::vector<TokenId> long_chunk(70, TokenId(1));
  const ChunkedPrompt prompt = {
      .options = {}, .system = {}, .chunks = {{TokenId(2)}, long_chunk}, .question = {TokenId(3)}};
  const ApiError part = ApiErrorOf(CheckChunkedPrompt(prompt, 64, 9));
  EXPECT_EQ(part.code, "context_length_exceeded") << part.message;
  EXPECT_EQ(part.param, "chunks[1]");
  EXPECT_EQ(ApiErrorOf(CheckPromptTokens(64, 64)).code, "context_length_exceeded");
  const RequestLimits limits = {.context_length = 4, .vocabulary = 9, .longest_token_bytes = 2};
  EXPECT_EQ(ApiErrorOf(CheckPromptBytes(9, limits)).code, "context_length_exceeded");
  EXPECT_EQ(ApiErrorOf(CheckPromptTokens(0, 64)).code, "");
}

TEST(ApiError, APromptIsNamedAsTheClientNamedIt) {
  absl::Status ids = absl::InvalidArgumentError("prompt_token_ids[0] is 272; at most 271");
  SetErrorParam(ids, "prompt_token_ids");
  EXPECT_EQ(PromptErrorOf(ids, "prompt", 0, 1).param, "prompt");
  EXPECT_EQ(PromptErrorOf(ids, "prompt", 0, 1).message, "prompt[0] is 272; at most 271");
  EXPECT_EQ(PromptErrorOf(ids, "prompt", 1, 2).param, "prompt[1]");
  EXPECT_EQ(PromptErrorOf(ids, "prompt", 1, 2).message, "prompt[1][0] is 272; at most 271");
  EXPECT_EQ(PromptErrorOf(ids, "", 0, 1).param, "prompt_token_ids") << "the client sent that";
  const absl::Status too_long = absl::InvalidArgumentError("the prompt has 9000 tokens");
  EXPECT_EQ(PromptErrorOf(too_long, "prompt", 0, 1).param, "prompt");
  EXPECT_EQ(PromptErrorOf(too_long, "prompt", 0, 1).message, "the prompt has 9000 tokens");
  EXPECT_EQ(PromptErrorOf(too_long, "prompt", 2, 3).message,
            "prompt[2]: the prompt has 9000 tokens");
  EXPECT_EQ(PromptErrorOf(too_long, "messages", 0, 1).param, "messages");
  const absl::Status part = absl::InvalidArgumentError("part 1 (chunks[0]) has 0 bytes");
  EXPECT_EQ(PromptErrorOf(part, "prompt", 0, 1).param, "prompt") << "the separator split it";
  EXPECT_EQ(PromptErrorOf(part, "prompt", 1, 2).message,
            "prompt[1]: part 1 (chunks[0]) has 0 bytes");
  EXPECT_EQ(PromptErrorOf(part, "messages", 0, 1).param, "messages");
  EXPECT_EQ(PromptErrorOf(part, "", 0, 1).param, "chunks[0]") << "the client sent that";
}

TEST(ApiError, ErrorsOfOtherFieldsKeepTheirNames) {
  absl::Status heat = absl::InvalidArgumentError("temperature is 9");
  SetErrorParam(heat, "temperature");
  EXPECT_EQ(PromptErrorOf(heat, "prompt", 1, 2).param, "temperature");
  EXPECT_EQ(PromptErrorOf(absl::InternalError("x"), "prompt", 1, 2).param, "");
  EXPECT_EQ(
      PromptErrorOf(absl::FailedPreconditionError("no worker takes chunks"), "prompt", 0, 1).param,
      "");
}

TEST(ApiError, HttpErrorsHaveATypeAndACode) {
  EXPECT_EQ(HttpError(413, "m").code, "request_too_large");
  EXPECT_EQ(HttpError(408, "m").type, "timeout_error");
  EXPECT_EQ(HttpError(431, "m").code, "headers_too_large");
  EXPECT_EQ(HttpError(503, "m").retry_after_s, 1);
  EXPECT_EQ(HttpError(418, "m").type, "invalid_request_error");
  EXPECT_EQ(HttpError(599, "m").type, "server_error");
}

TEST(ApiError, TheBodyIsOpenAis) {
  EXPECT_EQ(ErrorBody({.status = 400, .message = "a\"b", .type = "t", .param = "n", .code = "c"}),
            R"({"error":{"message":"a\"b","type":"t","param":"n","code":"c"}})");
  EXPECT_EQ(ErrorBody(ApiErrorOf(absl::InternalError("\xFF"))),
            "{\"error\":{\"message\":\"\xEF\xBF\xBD\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":\"internal_error\"}}");
}

TEST(ApiError, AnUnknownModelIsNamedSafely) {
  const ApiError error = ModelNotFound("gpt\n4", "smol");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, "the model \"gpt\\x0a4\" is not served here; served: smol");
}

}  // namespace
}  // namespace baton
