// Tests of request limits at all entrances: the public API, HTTP bodies, the lines of `baton run
// --jobs` and `baton generate --jobs` (one reader), and the workers' own requests. Each must refuse
// a bad value with the same message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/jobs.h"
#include "openai/api_error.h"
#include "openai/openai_request.h"
#include "rpc/client_request_wire.h"
#include "rpc/sampling_wire.h"
#include "tests/engine/worker_bench.h"
#include "worker_rpc/request_conversion.h"

namespace baton {
namespace {

struct Asked {
  SamplingParams sampling;
  int32_t n = 1;
  std::vector<TokenId> prompt = {1, 2, 3};
};

const RequestLimits kLimits = {.context_length = BenchOptions().context_length,
                               .vocabulary = kFakeVocabulary};

absl::Status OfTheApi(const Asked& asked) {
  v1::GenerateRequest request;
  *request.mutable_sampling() = SamplingToWire(asked.sampling);
  request.set_n(asked.n);
  request.mutable_prompt_token_ids()->mutable_ids()->Add(asked.prompt.begin(), asked.prompt.end());
  const absl::StatusOr<ClientRequest> read = ClientRequestFromWire(request, kLimits);
  return read.ok() ? CheckRequest(*read, kLimits) : read.status();
}

absl::Status OfAnEngine(GenerateRequest request) {
  WorkerBench bench;
  const auto record = bench.Generate(std::move(request));
  bench.core->Cancel(bench.last_handle);
  const bool refused = record->error && !absl::IsCancelled(*record->error);
  return refused ? *record->error : absl::OkStatus();
}

absl::Status OfADecodeWorker(const Asked& asked) {
  v1::DecodeRequest request;
  *request.mutable_sampling() = SamplingToWire(asked.sampling);
  request.set_n(asked.n);
  request.mutable_prompt_token_ids()->Add(asked.prompt.begin(), asked.prompt.end());
  absl::StatusOr<SamplingParams> sampling = SamplingFromWire(request.sampling());
  if (!sampling.ok()) return sampling.status();
  if (absl::Status size = CheckSize(request, kLimits.context_length); !size.ok()) return size;
  return OfAnEngine(*GenerateRequestFromWire(std::move(request), *std::move(sampling)));
}

absl::Status OfAnEngine(const Asked& asked) {
  GenerateRequest request = WorkerBench::Request(asked.prompt, std::nullopt);
  request.sampling = asked.sampling;
  request.n = asked.n;
  return OfAnEngine(std::move(request));
}

absl::Status OfAJob(const std::string& fields) {
  const absl::Status status = ParseJob(absl::StrCat("{\"prompt\":\"a\",", fields, "}"), 1).status();
  // The message follows "line 1, column C: " with the column of the field.
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(status.message(), absl::MaxSplits(": ", 1));
  EXPECT_THAT(parts.first, ::testing::MatchesRegex("line 1, column [0-9]+")) << status;
  EXPECT_NE(parts.first, "line 1, column 1") << status;
  return absl::Status(status.code(), parts.second);
}

absl::Status OfABody(OpenAiEndpoint endpoint, const std::string& input, const std::string& fields) {
  const std::string body = absl::StrCat("{", input, ",", fields, "}");
  const absl::Status status = ReadOpenAiRequest(endpoint, body, 1 << 20).status();
  const std::string param = ApiErrorOf(status).param;
  EXPECT_THAT(fields, ::testing::HasSubstr(absl::StrCat("\"", param, "\":"))) << status;
  return absl::Status(status.code(), status.message());
}

TEST(RequestLimits, EveryEntranceRefusesABadValueWithTheSameMessage) {
  const auto repeated = [](const std::string& entry, int times) {
    std::string out = entry;
    for (int i = 1; i < times; ++i) out += "," + entry;
    return out;
  };
  const auto biases = [](int count) {
    std::string out = "\"0\":1";
    for (int i = 1; i < count; ++i) absl::StrAppend(&out, ",\"", i, "\":1");
    return out;
  };
  const struct {
    std::function<void(Asked&)> change;
    std::string job;
    std::string refusal;
  } cases[] = {
      {[](Asked& a) { a.sampling.temperature = 100.5f; }, R"("temperature":100.5)",
       "temperature is 100.5; [0, 100] is allowed"},
      {[](Asked& a) { a.sampling.top_k = -1; }, R"("top_k":-1)",
       "top_k is -1; at least 0 is allowed"},
      {[](Asked& a) { a.sampling.top_p = 0; }, R"("top_p":0)", "top_p is 0; (0, 1] is allowed"},
      {[](Asked& a) { a.sampling.min_p = 1.5f; }, R"("min_p":1.5)",
       "min_p is 1.5; [0, 1] is allowed"},
      {[](Asked& a) { a.sampling.repetition_penalty = 0; }, R"("repetition_penalty":0)",
       "repetition_penalty is 0; [0.01, 100] is allowed"},
      {[](Asked& a) { a.sampling.presence_penalty = 3; }, R"("presence_penalty":3)",
       "presence_penalty is 3; [-2, 2] is allowed"},
      {[](Asked& a) { a.sampling.frequency_penalty = -3; }, R"("frequency_penalty":-3)",
       "frequency_penalty is -3; [-2, 2] is allowed"},
      {[](Asked& a) { a.sampling.logit_bias[7] = -101; }, R"("logit_bias":{"7":-101})",
       "logit_bias of token 7 is -101; [-100, 100] is allowed"},
      {[](Asked& a) {
         for (TokenId token = 0; token < 1025; ++token) a.sampling.logit_bias[token] = 1;
       },
       absl::StrCat("\"logit_bias\":{", biases(1025), "}"),
       "logit_bias has 1025 entries; at most 1024 are allowed"},
      {[](Asked& a) { a.sampling.stop.assign(17, "x"); },
       absl::StrCat("\"stop\":[", repeated("\"x\"", 17), "]"),
       "stop has 17 entries; at most 16 are allowed"},
      {[](Asked& a) {
         a.sampling.stop = {"x", ""};
       },
       R"("stop":["x",""])", "stop[1] has 0 bytes; [1, 256] are allowed"},
      {[](Asked& a) { a.sampling.stop = {std::string(257, 'x')}; },
       absl::StrCat("\"stop\":\"", std::string(257, 'x'), "\""),
       "stop[0] has 257 bytes; [1, 256] are allowed"},
      {[](Asked& a) { a.sampling.stop_token_ids.assign(65, 1); },
       absl::StrCat("\"stop_token_ids\":[", repeated("1", 65), "]"),
       "stop_token_ids has 65 entries; at most 64 are allowed"},
      {[](Asked& a) { a.sampling.max_tokens = 0; }, R"("max_tokens":0)",
       "max_tokens is 0; at least 1 is allowed"},
      {[](Asked& a) { a.sampling.min_tokens = -1; }, R"("min_tokens":-1)",
       "min_tokens is -1; at least 0 is allowed"},
      {[](Asked& a) {
         a.sampling.max_tokens = 3;
         a.sampling.min_tokens = 4;
       },
       R"("max_tokens":3,"min_tokens":4)", "min_tokens is 4; at most max_tokens, 3, is allowed"},
      {[](Asked& a) { a.sampling.logprobs = 21; }, R"("logprobs":21)",
       "logprobs is 21; [0, 20] is allowed"},
      {[](Asked& a) { a.n = 17; }, R"("n":17)", "n is 17; [1, 16] is allowed"},
      {[](Asked& a) { a.n = -1; }, R"("n":-1)", "n is -1; [1, 16] is allowed"},
  };
  for (const auto& [change, job, refusal] : cases) {
    const absl::Status expected = absl::InvalidArgumentError(refusal);
    Asked asked;
    change(asked);
    EXPECT_EQ(OfTheApi(asked), expected);
    EXPECT_EQ(OfADecodeWorker(asked), expected);
    EXPECT_EQ(OfAnEngine(asked), expected);
    EXPECT_EQ(OfAJob(job), expected);
    EXPECT_EQ(OfABody(OpenAiEndpoint::kCompletions, R"("prompt":"a")", job), expected);
    EXPECT_EQ(OfABody(OpenAiEndpoint::kChatCompletions, R"("messages":[])", job), expected);
  }
}

// A job's line is parsed before the model is known, so this test leaves out jobs.
TEST(RequestLimits, RouterAndWorkerRefuseValuesThatDoNotFitTheModelWithTheSameMessage) {
  const std::string known = absl::StrCat("[0, ", kFakeVocabulary - 1, "] is allowed");
  const struct {
    std::function<void(Asked&)> change;
    std::string refusal;
  } cases[] = {
      {[](Asked& a) { a.sampling.temperature = NAN; }, "temperature is nan; [0, 100] is allowed"},
      {[](Asked& a) {
         a.sampling.stop_token_ids = {1, kFakeVocabulary};
       },
       absl::StrCat("stop_token_ids[1] is ", kFakeVocabulary, "; ", known)},
      {[](Asked& a) { a.sampling.logit_bias[-1] = 1; },
       absl::StrCat("logit_bias's token is -1; ", known)},
      {[](Asked& a) { a.prompt[2] = kFakeVocabulary; },
       absl::StrCat("prompt_token_ids[2] is ", kFakeVocabulary, "; ", known)},
      {[](Asked& a) { a.prompt.assign(128, 1); },
       "the prompt has 128 tokens; the context of 128 tokens leaves none to generate"},
      {[](Asked& a) { a.prompt.clear(); }, "the prompt has no tokens"},
  };
  for (const auto& [change, refusal] : cases) {
    const absl::Status expected = absl::InvalidArgumentError(refusal);
    Asked asked;
    change(asked);
    EXPECT_EQ(OfTheApi(asked), expected);
    EXPECT_EQ(OfADecodeWorker(asked), expected);
    EXPECT_EQ(OfAnEngine(asked), expected);
  }
}

TEST(RequestLimits, AllEntrancesAcceptValidRequests) {
  EXPECT_EQ(OfTheApi(Asked()), absl::OkStatus());
  EXPECT_EQ(OfADecodeWorker(Asked()), absl::OkStatus());
  EXPECT_EQ(OfAnEngine(Asked()), absl::OkStatus());
  EXPECT_TRUE(ParseJob(R"({"prompt":"a"})", 1).ok());
}

}  // namespace
}  // namespace baton
