#include "requests/client_request.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/request_bounds.h"

namespace baton {
namespace {

constexpr RequestLimits kLimits = {
    .max_prompt_bytes = 100, .context_length = 64, .vocabulary = 256, .longest_token_bytes = 1};

TEST(ClientRequest, EveryFieldReachesTheCheck) {
  const std::string long_text(300, 'x');
  const struct {
    std::function<void(ClientRequest&)> change;
    const char* refusal;
  } cases[] = {
      {[&](ClientRequest& r) { r.request_id = long_text; },
       "request_id has 300 bytes; at most 128 are allowed"},
      {[&](ClientRequest& r) { r.session_id = long_text; },
       "session_id has 300 bytes; at most 128 are allowed"},
      {[&](ClientRequest& r) { r.tenant = long_text; },
       "tenant has 300 bytes; at most 256 are allowed"},
      {[&](ClientRequest& r) { r.cache_salt = long_text; },
       "cache_salt has 300 bytes; at most 256 are allowed"},
      {[&](ClientRequest& r) { r.chunk_separator = long_text; },
       "chunk_separator has 300 bytes; at most 256 are allowed"},
      {[](ClientRequest& r) { r.priority = 101; }, "priority is 101; [-100, 100] is allowed"},
      {[](ClientRequest& r) { r.n = 17; }, "n is 17; [1, 16] is allowed"},
      {[](ClientRequest& r) { r.sampling.top_p = 0; }, "top_p is 0; (0, 1] is allowed"},
      {[](ClientRequest& r) { r.prompt = std::string(101, 'x'); },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[](ClientRequest& r) { r.prompt_token_ids.emplace(64, 1); },
       "the prompt has 64 tokens; the context of 64 tokens leaves none to generate"},
      {[](ClientRequest& r) { r.prompt_token_ids = {256}; },
       "prompt_token_ids[0] is 256; [0, 255] is allowed"},
      {[](ClientRequest& r) { r.messages.emplace(4097); },
       "messages has 4097 entries; at most 4096 are allowed"},
      {[](ClientRequest& r) {
         r.messages = {{.role = "user", .content = std::string(97, 'x'), .name = std::nullopt}};
       },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[](ClientRequest& r) {
         r.messages = {{.role = "user",
                        .content = std::string(50, 'x'),
                        .name = std::nullopt,
                        .chunks = {std::string(47, 'x')}}};
       },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[](ClientRequest& r) { r.parts.emplace().chunks.assign(501, "x"); },
       "chunks has 501 entries; at most 500 are allowed"},
      {[](ClientRequest& r) {
         r.parts.emplace().question = std::vector<TokenId>(kMaxPromptTokenIds + 1, 1);
       },
       "the prompt has 1048577 token ids; at most 1048576 are allowed"},
  };
  for (const auto& [change, refusal] : cases) {
    ClientRequest request;
    EXPECT_TRUE(CheckRequest(request, kLimits).ok());
    change(request);
    EXPECT_EQ(CheckRequest(request, kLimits), absl::InvalidArgumentError(refusal));
  }
}

TEST(ClientRequest, TheServersSeparatorCountsUnlessTheRequestHasOne) {
  ClientRequest request;
  request.prompt = "#Q";
  request.prompt->insert(0, 60, 'x');
  const RequestLimits small = {.context_length = 16, .vocabulary = 256, .longest_token_bytes = 1};
  EXPECT_FALSE(CheckRequest(request, small).ok());
  EXPECT_TRUE(CheckRequest(request, small, "#").ok());
  request.chunk_separator = "";
  EXPECT_FALSE(CheckRequest(request, small, "#").ok());
}

TEST(ClientRequest, InputsAndTheirBytesAreCounted) {
  ClientRequest request;
  EXPECT_EQ(InputsOf(request), 0);
  EXPECT_EQ(InputBytes(request), 0u);
  request.prompt = "abc";
  EXPECT_EQ(InputBytes(request), 3u);
  request.prompt_token_ids = {1, 2};
  EXPECT_EQ(InputBytes(request), 11u);
  request.messages = {{.role = "user", .content = "hi", .name = std::nullopt, .chunks = {"C"}}};
  EXPECT_EQ(InputBytes(request), 18u);
  request.parts = ChunkedText{.system = "S", .chunks = {std::vector<TokenId>{5}}, .question = "Q"};
  EXPECT_EQ(InputBytes(request), 24u);
  EXPECT_EQ(InputsOf(request), 4);
}

}  // namespace
}  // namespace baton
