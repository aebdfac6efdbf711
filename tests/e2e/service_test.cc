// Tests of a request's path through the services: remote and local prefill, many requests at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

TEST_F(ServiceTest, ARemotePrefillStreamsAnAnswerWithItsLedger) {
  FakeWorker& decode = AddDecode();
  FakeWorker& prefill = AddPrefill(decode);
  v1::GenerateRequest request = LongPrompt();
  request.set_include_prompt_token_ids(true);
  request.mutable_sampling()->set_seed(7);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.started.prompt_tokens(), 200);
  EXPECT_EQ(answer.started.prompt_token_ids_size(), 200);
  EXPECT_EQ(answer.started.seed(), 7);
  ASSERT_TRUE(answer.has_finished);
  EXPECT_EQ(answer.finished.usage().prompt_tokens(), 200);
  EXPECT_EQ(answer.finished.usage().completion_tokens(), 3);
  EXPECT_EQ(answer.finished.usage().cached_tokens(), 16);
  EXPECT_EQ(answer.finished.ledger().prefill_worker(), "worker-2");
  EXPECT_EQ(answer.finished.ledger().decode_worker(), "worker-1");
  EXPECT_EQ(answer.finished.ledger().prefill_chunks(), 2);
  EXPECT_GE(answer.finished.ledger().total_us(), answer.finished.ledger().first_token_us());
  EXPECT_TRUE(prefill.engine().Eventually([](auto& e) { return e.prefilled_count() == 1; }));
  EXPECT_TRUE(decode.engine().generated()[0].remote_prefill);
  EXPECT_EQ(decode.engine().generated()[0].sampling.seed, 7u);
}

TEST_F(ServiceTest, EachChoiceHasItsTextAndItsEndWithTheWholeLedger) {
  FakeWorker& decode = AddDecode();
  FakeWorker& prefill = AddPrefill(decode);
  v1::GenerateRequest request = LongPrompt();
  request.set_n(3);
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.texts, (std::map<int32_t, std::string>{{0, "abc"}, {1, "abc"}, {2, "abc"}}));
  ASSERT_EQ(answer.ends.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer.ends[i].choice(), i);
    EXPECT_EQ(answer.ends[i].usage().completion_tokens(), 3);
    EXPECT_EQ(answer.ends[i].ledger().prefill_worker(), "worker-2");
    EXPECT_EQ(answer.ends[i].ledger().prefill_chunks(), 2);
  }
  EXPECT_EQ(decode.engine().generated()[0].n, 3);
  EXPECT_TRUE(decode.engine().generated()[0].generated.empty());
  EXPECT_TRUE(prefill.engine().Eventually([](auto& e) { return e.prefilled_count() == 1; }));
  EXPECT_EQ(prefill.engine().prefilled()[0].n, 3);
}

TEST_F(ServiceTest, ANumberOfChoicesOutOfRangeIsRefusedByName) {
  AddDecode();
  for (const int32_t n : {0, -1, 17, INT32_MAX}) {
    v1::GenerateRequest request;
    request.set_prompt("short");
    request.set_n(n);
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(answer.status.error_message(), absl::StrCat("n is ", n, "; [1, 16] is allowed"));
  }
}

TEST_F(ServiceTest, AShortPromptAndAKnownPrefixArePrefilledOnTheDecodeWorker) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode);
  ASSERT_TRUE(TickingUntilFollowed(2));
  v1::GenerateRequest request;
  request.set_prompt("short");
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_FALSE(decode.engine().generated()[0].remote_prefill);
  EXPECT_TRUE(Generate(LongPrompt()).status.ok());
  EXPECT_TRUE(decode.engine().generated()[1].remote_prefill);
  decode.engine().Store(PromptHashes());
  ASSERT_TRUE(TickingUntilUnits("worker-1", 12));
  EXPECT_TRUE(Generate(LongPrompt()).status.ok());
  EXPECT_FALSE(decode.engine().generated()[2].remote_prefill);
}

TEST_F(ServiceTest, AWorkerThatEndsLeavesTheRegistryAndLetsItsAnswersEnd) {
  FakeWorker& worker = AddDecode();
  const auto stub = v1::DecodeWorker::NewStub(MakeChannel(worker.address()));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  v1::DecodeRequest request;
  request.set_remote_prefill(true);
  request.mutable_prompt_token_ids()->Resize(20, 'x');
  const auto reader = stub->Decode(&context, request);
  v1::DecodeEvent event;
  ASSERT_TRUE(reader->Read(&event) && event.has_ticket());
  std::thread leaving([&worker] { worker.Leave(); });
  EXPECT_TRUE(Eventually([this] { return router_->core().Workers().empty(); }))
      << "the worker must leave at once, not after missed heartbeats";
  EXPECT_TRUE(worker.engine().Answer(event.ticket().transfer_id()));
  std::string text;
  while (reader->Read(&event)) text += event.tokens().text();
  EXPECT_EQ(text, "abc");
  EXPECT_TRUE(reader->Finish().ok());
  leaving.join();
}

// No program registers with both roles yet.
TEST_F(ServiceTest, WorkersOfBothRolesPrefillForEachOtherAndDecode) {
  FakeWorker& one = AddWorker(v1::WORKER_ROLE_BOTH);
  FakeWorker& other = AddWorker(v1::WORKER_ROLE_BOTH);
  one.engine().OnPrefill(
      [&other](const TransferTicket& ticket) { other.engine().Answer(ticket.transfer_id); });
  other.engine().OnPrefill(
      [&one](const TransferTicket& ticket) { one.engine().Answer(ticket.transfer_id); });
  const v1::GetStatusResponse status = Status();
  for (const v1::WorkerStatus& worker : status.workers()) {
    EXPECT_EQ(worker.role(), v1::WORKER_ROLE_BOTH);
  }
  v1::GenerateRequest request = LongPrompt();
  for (const v1::PrefillPlacement placement :
       {v1::PREFILL_PLACEMENT_LOCAL, v1::PREFILL_PLACEMENT_REMOTE}) {
    request.set_placement(placement);
    const Answer answer = Generate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "abc");
    const v1::Ledger& ledger = answer.finished.ledger();
    EXPECT_EQ(ledger.prefill_worker().empty(), placement == v1::PREFILL_PLACEMENT_LOCAL);
    EXPECT_NE(ledger.prefill_worker(), ledger.decode_worker());
  }
  EXPECT_EQ(one.engine().prefilled().size() + other.engine().prefilled().size(), 1u);
}

TEST_F(ServiceTest, PlacementIsObeyed) {
  FakeWorker& decode = AddDecode();
  AddPrefill(decode);
  v1::GenerateRequest request = LongPrompt();
  request.set_placement(v1::PREFILL_PLACEMENT_LOCAL);
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_FALSE(decode.engine().generated()[0].remote_prefill);
  request.set_prompt("short");
  request.set_placement(v1::PREFILL_PLACEMENT_REMOTE);
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_TRUE(decode.engine().generated()[1].remote_prefill);
}

TEST_F(ServiceTest, HandOversDoNotWaitForEachOther) {
  FakeWorker& worker = AddDecode({.hold_hand_overs = true});
  const auto stub = v1::DecodeWorker::NewStub(MakeChannel(worker.address()));
  v1::PrefillLocallyRequest request;
  request.set_transfer_id(1);
  request.set_receiver_epoch(worker.engine().epoch().value());
  std::vector<std::future<grpc::Status>> answers;
  for (int i = 0; i < 3; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(60'000));
      v1::PrefillLocallyResponse response;
      return stub->PrefillLocally(&context, request, &response);
    }));
  }
  EXPECT_TRUE(worker.engine().Eventually([](const auto& e) { return e.hand_over_count() == 3; }));
  worker.engine().AnswerHandOvers();
  for (auto& answer : answers) EXPECT_EQ(answer.get().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, ManyClientsAtOnceAllGetTheirAnswer) {
  FakeWorker& decode = AddDecode({.tokens = 20});
  AddPrefill(decode);
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([this, &answered, i] {
      for (int j = 0; j < 10; ++j) {
        v1::GenerateRequest request = LongPrompt();
        request.set_tenant(std::to_string(i * 10 + j));  // no shared prefixes
        if (Generate(request).text == "abcdefghijklmnopqrst") ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 160);
  EXPECT_EQ(router_->core().counters().requests_failed, 0);
}

}  // namespace
}  // namespace baton
