// Tests of chunked prompts in a fleet with workers of several builds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/chunked_request.h"
#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ServiceChunksTest : public ServiceTest {
 protected:
  static ChunkedPrompt Parts() {
    ChunkedPrompt prompt;
    prompt.system.assign(20, 's');
    prompt.chunks = {std::vector<TokenId>(150, 'a'), std::vector<TokenId>(150, 'b')};
    prompt.question.assign(10, 'q');
    return prompt;
  }
  static v1::GenerateRequest Request() {
    const ChunkedPrompt prompt = Parts();
    const auto text = [](const std::vector<TokenId>& tokens) {
      return std::string(tokens.begin(), tokens.end());
    };
    v1::GenerateRequest request;
    v1::PromptParts& parts = *request.mutable_parts();
    parts.mutable_system()->set_text(text(prompt.system));
    for (const auto& chunk : prompt.chunks) parts.add_chunks()->set_text(text(chunk));
    parts.mutable_question()->set_text(text(prompt.question));
    return request;
  }
  static std::vector<Hash128> KeysOfParts() {
    const ChunkedRequest request(
        Parts(),
        MakeNamespace({.tenant = "", .cache_salt = "", .lora = "", .model_revision = "fake-model"}),
        4096);
    std::vector<Hash128> keys;
    for (const ChunkedRequest::Part& part : request.parts()) keys.push_back(part.key);
    return keys;
  }
  void ExpectRefused(const v1::GenerateRequest& request, const std::string& why) {
    // The router waits some seconds for workers that may still register.
    Answer answer;
    EXPECT_TRUE(Eventually([&] {
      answer = Generate(request);
      return answer.status.error_code() != grpc::StatusCode::UNAVAILABLE;
    }));
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(answer.status.error_message(), HasSubstr(why));
    EXPECT_EQ(answer.started_count, 0);
  }
};

TEST_F(ServiceChunksTest, OlderWorkersGetNoChunkedPrompts) {
  FakeWorker& older = AddDecode();
  ExpectRefused(Request(), "no worker of this fleet supports prompt chunks");
  FakeWorker& newer = AddDecode({.chunks = PromptChunkSupport()});
  for (int i = 0; i < 6; ++i) {
    const Answer answer = Generate(Request());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "abc");
    EXPECT_EQ(answer.started.prompt_tokens(), 330);
  }
  EXPECT_EQ(older.engine().generated().size(), 0u);
  const std::vector<GenerateRequest> asked = newer.engine().generated();
  ASSERT_EQ(asked.size(), 6u);
  EXPECT_EQ(asked[0].chunked, Parts());
  EXPECT_EQ(asked[0].prompt, FlatTokens(Parts()));
  EXPECT_TRUE(Generate(LongPrompt()).status.ok());
}

TEST_F(ServiceChunksTest, APrefillWorkerThatHandsNoChunksOverIsNotAsked) {
  FakeWorker& decode = AddDecode({.chunks = PromptChunkSupport()});
  FakeWorker& prefill = AddPrefill(decode, {.chunks = PromptChunkSupport()});
  EXPECT_TRUE(Generate(Request()).status.ok());
  EXPECT_EQ(decode.engine().generated().size(), 1u);
  EXPECT_FALSE(decode.engine().generated()[0].remote_prefill);
  EXPECT_EQ(prefill.engine().prefilled().size(), 0u);
  v1::GenerateRequest request = Request();
  request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
  ExpectRefused(request, "no prefill worker of this fleet hands over the KV of prompt chunks");
}

TEST_F(ServiceChunksTest, AWorkersReasonReachesTheClient) {
  AddDecode();
  AddDecode({.chunks = PromptChunkSupport{.refusal = "this model has 3 groups of windows"}});
  ExpectRefused(Request(), "worker-2: this model has 3 groups of windows");
}

TEST_F(ServiceChunksTest, ARepairGoesToAWorkerThatCanDoIt) {
  AddDecode({.chunks = PromptChunkSupport()});
  v1::GenerateRequest request = Request();
  request.set_chunk_repair("first:16");
  ExpectRefused(request, "chunk_repair first:16 is not supported by any worker");
  FakeWorker& repairs = AddDecode({.chunks = PromptChunkSupport{.repairs_first = true}});
  EXPECT_TRUE(Generate(request).status.ok());
  ASSERT_EQ(repairs.engine().generated().size(), 1u);
  EXPECT_EQ(repairs.engine().generated()[0].chunked->options.repair.first_tokens, 16);
}

TEST_F(ServiceChunksTest, AnotherWorkerResumesAChunkedPromptAndAnOlderOneIsPassedOver) {
  FakeWorker& lost = AddDecode({.tokens = 3, .finish = false, .chunks = PromptChunkSupport()});
  const Answer answer = GenerateThen(Request(), [this, &lost](const Answer& begun) {
    if (begun.text != "abc") return;
    AddDecode();
    AddDecode({.tokens = 5, .chunks = PromptChunkSupport()});
    lost.Die();
  });
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abcde");
  EXPECT_EQ(answer.finished.ledger().resumes(), 1);
  EXPECT_EQ(answer.finished.ledger().decode_worker(), "worker-3");
  const auto asked = workers_[2]->engine().generated();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].chunked, Parts());
  ASSERT_EQ(asked[0].generated.size(), 1u);
  EXPECT_EQ(asked[0].generated[0].tokens, (std::vector<TokenId>{'a', 'b', 'c'}));
}

TEST_F(ServiceChunksTest, AnAnswerThatOnlyOlderWorkersCouldResumeIsUnavailable) {
  FakeWorker& lost = AddDecode({.tokens = 3, .finish = false, .chunks = PromptChunkSupport()});
  const Answer answer = GenerateThen(Request(), [this, &lost](const Answer& begun) {
    if (begun.text != "abc") return;
    AddDecode();
    lost.Die();
  });
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(answer.text, "abc");
}

TEST_F(ServiceChunksTest, RequestsFollowTheChunksThatWorkersReport) {
  AddDecode({.chunks = PromptChunkSupport()});
  FakeWorker& holder = AddDecode({.chunks = PromptChunkSupport()});
  const std::vector<Hash128> keys = KeysOfParts();
  ASSERT_EQ(keys.size(), 3u);
  for (size_t i = 1; i < keys.size(); ++i) holder.engine().Store({keys[i]});
  ASSERT_TRUE(TickingUntilUnits("worker-2", 2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Generate(Request()).finished.ledger().decode_worker(), "worker-2");
  }
  // A chunk's key depends on the system part.
  v1::GenerateRequest other = Request();
  other.mutable_parts()->mutable_system()->set_text("another system part");
  EXPECT_EQ(Generate(other).finished.ledger().decode_worker(), "worker-1");
  for (size_t i = 1; i < keys.size(); ++i) holder.engine().Drop({keys[i]});
  ASSERT_TRUE(TickingUntilUnits("worker-2", 0));
  EXPECT_EQ(Generate(Request()).finished.ledger().decode_worker(), "worker-1");
}

// The router joins later than the worker's events, so it gets a snapshot.
TEST_F(ServiceChunksTest, ASnapshotHasTheChunks) {
  AddDecode({.chunks = PromptChunkSupport()});
  FakeWorker& holder = AddDecode({.kept_event_bytes = 1, .chunks = PromptChunkSupport()});
  for (const Hash128& key : KeysOfParts()) holder.engine().Store({key});
  for (uint64_t i = 1; i <= 10; ++i) holder.engine().Store({{i, i}});
  ASSERT_TRUE(TickingUntilUnits("worker-2", 13));
  EXPECT_EQ(Indexed("worker-2").snapshots(), 1);
  EXPECT_EQ(Generate(Request()).finished.ledger().decode_worker(), "worker-2");
}

TEST_F(ServiceChunksTest, ARequestToAWorkerThatHasBothKindsOfPromptsIsRefused) {
  FakeWorker& worker = AddDecode({.chunks = PromptChunkSupport()});
  v1::DecodeRequest request;
  request.mutable_sampling()->set_seed(1);
  request.mutable_chunked()->mutable_question()->add_ids(1);
  request.add_prompt_token_ids(1);
  const auto stub = v1::DecodeWorker::NewStub(MakeChannel(worker.address()));
  grpc::ClientContext context;
  const auto reader = stub->Decode(&context, request);
  v1::DecodeEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(worker.engine().generated().size(), 0u);
}

}  // namespace
}  // namespace baton
