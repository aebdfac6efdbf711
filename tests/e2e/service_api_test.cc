// Tests of the public API over real gRPC: refusals, and the calls other than Generate.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/service_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ServiceApiTest : public ServiceTest {};

TEST_F(ServiceApiTest, InvalidRequestsAreRefusedByFieldAndReachNoWorker) {
  FakeWorker& decode = AddDecode();
  const auto refusal = [this](const v1::GenerateRequest& request) {
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return answer.status.error_message();
  };
  v1::GenerateRequest request;
  EXPECT_THAT(refusal(request), HasSubstr("prompt_token_ids"));
  request.set_prompt(std::string(600, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("600 tokens"));
  request.set_prompt(std::string(5 << 20, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("bytes"));
  request.mutable_prompt_token_ids()->add_ids(257);
  EXPECT_THAT(refusal(request), HasSubstr("prompt_token_ids[0] is 257"));
  request.set_prompt("x");
  request.mutable_sampling()->set_top_p(0);
  EXPECT_THAT(refusal(request), HasSubstr("top_p"));
  request.clear_sampling();
  request.set_request_id(std::string(129, 'x'));
  EXPECT_THAT(refusal(request), HasSubstr("request_id"));
  request.clear_request_id();
  request.set_priority(1000);
  EXPECT_THAT(refusal(request), HasSubstr("priority"));
  request.clear_priority();
  request.set_prompt("\xff\xfe");
  EXPECT_THAT(refusal(request), HasSubstr("prompt is not UTF-8"));
  EXPECT_EQ(decode.engine().generated().size(), 0);
}

TEST_F(ServiceApiTest, WorkersRefuseAPromptOverTheContextBeforeTheyCopyIt) {
  FakeWorker& decode = AddDecode();
  FakeWorker& prefill = AddPrefill(decode);
  v1::DecodeRequest to_decode;
  to_decode.mutable_prompt_token_ids()->Resize(1'000'000, 7);
  grpc::ClientContext decode_context;
  const auto reader =
      v1::DecodeWorker::NewStub(MakeChannel(decode.address()))->Decode(&decode_context, to_decode);
  v1::DecodeEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const grpc::Status of_decode = reader->Finish();

  v1::PrefillRequest to_prefill;
  to_prefill.mutable_prompt_token_ids()->Resize(1'000'000, 7);
  grpc::ClientContext prefill_context;
  v1::PrefillResponse response;
  const grpc::Status of_prefill = v1::PrefillWorker::NewStub(MakeChannel(prefill.address()))
                                      ->Prefill(&prefill_context, to_prefill, &response);
  for (const grpc::Status& status : {of_decode, of_prefill}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("1000000 tokens; the context of 512"));
  }
  EXPECT_TRUE(decode.engine().generated().empty());
  EXPECT_EQ(prefill.engine().prefilled_count(), 0);
}

TEST_F(ServiceApiTest, AMessageOverTheSizeLimitIsRefused) {
  AddDecode();
  v1::GenerateRequest request;
  request.set_prompt(std::string(17 << 20, 'x'));
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceApiTest, WithoutWorkersRequestsAreUnavailable) {
  EXPECT_EQ(Generate(LongPrompt()).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(router_->Tick());
}

TEST_F(ServiceApiTest, TheModelTokenizesAndStatusNamesTheWorkers) {
  AddDecode();
  EXPECT_TRUE(Eventually([this] { return router_->Tick(); }));
  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi");
  v1::TokenizeResponse ids;
  ASSERT_TRUE(stub_->Tokenize(&tokenize_context, tokenize, &ids).ok());
  EXPECT_EQ(ids.ids_size(), 2);

  grpc::ClientContext detokenize_context;
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = ids.ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&detokenize_context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "hi");

  grpc::ClientContext model_context;
  v1::GetModelResponse model;
  ASSERT_TRUE(stub_->GetModel(&model_context, v1::GetModelRequest(), &model).ok());
  EXPECT_EQ(model.name(), "fake");
  EXPECT_FALSE(model.has_chat_template());

  grpc::ClientContext status_context;
  v1::GetStatusResponse status;
  ASSERT_TRUE(stub_->GetStatus(&status_context, v1::GetStatusRequest(), &status).ok());
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).worker_id(), "worker-1");
  EXPECT_EQ(status.workers(0).pool().total_blocks(), 1000);
  EXPECT_TRUE(status.ready());
  EXPECT_TRUE(router_->Tick());
}

TEST_F(ServiceApiTest, TheModelsRecommendedSamplingReachesTheClientAndNoRequest) {
  FakeWorker& decode = AddDecode({.sampling = {.temperature = 0.6f, .top_k = 20, .top_p = 9.0f}});
  grpc::ClientContext context;
  v1::GetModelResponse model;
  ASSERT_TRUE(stub_->GetModel(&context, v1::GetModelRequest(), &model).ok());
  EXPECT_EQ(model.recommended_sampling().temperature(), 0.6f);
  EXPECT_EQ(model.recommended_sampling().top_k(), 20);
  EXPECT_FALSE(model.recommended_sampling().has_top_p()) << "9 is no share";
  EXPECT_FALSE(model.recommended_sampling().has_min_p());
  v1::GenerateRequest request;
  request.set_prompt("x");
  EXPECT_TRUE(Generate(request).status.ok());
  ASSERT_EQ(decode.engine().generated().size(), 1);
  EXPECT_EQ(decode.engine().generated()[0].sampling.temperature, 1.0f);
}

TEST_F(ServiceApiTest, TheRouterKnowsANewPoolSizeBeforeItsAnswerComes) {
  FakeWorker& decode = AddDecode({.resizes = true});
  const auto worker = v1::Worker::NewStub(MakeChannel(decode.address()));
  for (int32_t blocks = 500; blocks < 510; ++blocks) {
    grpc::ClientContext context;
    v1::ResizePoolRequest request;
    request.set_blocks(blocks);
    v1::ResizePoolResponse response;
    ASSERT_TRUE(worker->ResizePool(&context, request, &response).ok());
    EXPECT_EQ(response.limit_bytes(), int64_t{blocks} << 10);
    EXPECT_EQ(response.reserved_bytes(), int64_t{blocks} << 10);
    EXPECT_EQ(response.before_bytes(), int64_t{response.before()} << 10);
    EXPECT_EQ(response.routers(), 1);
    ASSERT_EQ(response.routers_told(), 1);
    ASSERT_EQ(Status().workers(0).pool().limit_blocks(), blocks);
  }
}

TEST_F(ServiceApiTest, PiecesComeWhenTheyAreAskedFor) {
  AddDecode();
  v1::DetokenizeRequest request;
  for (const int32_t id : {0xc3, 0xa9, 0x61}) request.add_ids(id);
  for (const bool with_pieces : {false, true}) {
    request.set_with_pieces(with_pieces);
    grpc::ClientContext context;
    v1::DetokenizeResponse response;
    ASSERT_TRUE(stub_->Detokenize(&context, request, &response).ok());
    EXPECT_EQ(response.text(), "éa");
    const std::vector<std::string> pieces(response.pieces().begin(), response.pieces().end());
    if (with_pieces) {
      EXPECT_THAT(pieces, ::testing::ElementsAre("\xc3", "\xa9", "a"));
    } else {
      EXPECT_TRUE(pieces.empty());
    }
  }
}

TEST_F(ServiceApiTest, TextCallsBeyondTheLimitsAreRefusedByName) {
  AddDecode();
  v1::DetokenizeRequest detokenize;
  detokenize.mutable_ids()->Resize(1'000'001, 'a');
  grpc::ClientContext detokenize_context;
  v1::DetokenizeResponse text;
  const grpc::Status ids = stub_->Detokenize(&detokenize_context, detokenize, &text);
  EXPECT_EQ(ids.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ids.error_message(), HasSubstr("at most 1000000"));

  v1::TokenizeRequest tokenize;
  for (int i = 0; i < 4097; ++i) tokenize.mutable_messages()->add_messages();
  grpc::ClientContext tokenize_context;
  v1::TokenizeResponse tokens;
  const grpc::Status messages = stub_->Tokenize(&tokenize_context, tokenize, &tokens);
  EXPECT_EQ(messages.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(messages.error_message(), HasSubstr("at most 4096"));
}

// A request that does not end takes the only place of the concurrency limit.
TEST_F(ServiceApiTest, TextCallsCountAsActiveRequests) {
  RouterServerOptions options;
  options.server.listen = "127.0.0.1:0";
  options.server.drain_ms = 100;
  options.server.max_active_requests = 1;
  const auto router = *RouterServer::Start(options);
  const FakeWorker worker(v1::WORKER_ROLE_DECODE, 7, {.finish = false}, router->rpc().address());
  ASSERT_TRUE(Eventually([&router] { return router->core().model().ok(); }));
  const auto stub = v1::Inference::NewStub(MakeChannel(router->rpc().address()));
  grpc::ClientContext generate_context;
  const auto reader = stub->Generate(&generate_context, LongPrompt());
  v1::GenerateResponse first;
  ASSERT_TRUE(reader->Read(&first));

  grpc::ClientContext tokenize_context, detokenize_context;
  v1::TokenizeResponse ids;
  v1::DetokenizeResponse text;
  EXPECT_EQ(stub->Tokenize(&tokenize_context, v1::TokenizeRequest(), &ids).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(stub->Detokenize(&detokenize_context, v1::DetokenizeRequest(), &text).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  generate_context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  router->Shutdown();
}

TEST_F(ServiceApiTest, ATextLongerThanTheContextIsTokenizedButRefusedAsPrompt) {
  AddDecode();
  const std::string text(100'000, 'x');
  grpc::ClientContext context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text(text);
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&context, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.ids_size(), 100'000);
  v1::GenerateRequest request;
  request.set_prompt(text);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("100000 bytes; the context of 512 tokens"));
}

// The client's connection is alive, but flow control blocks its answer. It holds the only place.
TEST_F(ServiceApiTest, AClientThatReadsNothingLosesItsPlace) {
  RouterServerOptions options;
  options.server.listen = "127.0.0.1:0";
  options.server.drain_ms = 100;
  options.server.max_active_requests = 1;
  options.router.client_stall_ms = 200;
  const auto router = *RouterServer::Start(options);
  const FakeWorker worker(v1::WORKER_ROLE_DECODE, 7, {.tokens = 25}, router->rpc().address());
  ASSERT_TRUE(Eventually([&router] { return router->core().model().ok(); }));
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64);
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  narrow.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto deaf_stub = v1::Inference::NewStub(grpc::CreateCustomChannel(
      router->rpc().address(), grpc::InsecureChannelCredentials(), narrow));
  grpc::ClientContext deaf_context;
  const auto deaf = deaf_stub->Generate(&deaf_context, LongPrompt());
  ASSERT_TRUE(Eventually([&router] { return router->core().counters().requests_total == 1; }));

  const auto stub = v1::Inference::NewStub(MakeChannel(router->rpc().address()));
  const auto ask = [&stub] {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(20'000));
    const auto reader = stub->Generate(&context, LongPrompt());
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return reader->Finish().error_code();
  };
  EXPECT_EQ(ask(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Eventually([&] {
    router->Tick();
    return ask() == grpc::StatusCode::OK;
  }));
  deaf_context.TryCancel();
  EXPECT_FALSE(deaf->Finish().ok());
  router->Shutdown();
}

// A megabyte of zeros compresses to a kilobyte. The servers must not decompress it.
TEST_F(ServiceApiTest, CompressedRequestsAreRefused) {
  AddDecode();
  const auto stub = v1::Inference::NewStub(
      grpc::CreateChannel(router_->rpc().address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GenerateRequest request;
  request.set_prompt(std::string(1 << 20, 'x'));
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServiceApiTest, AModelThatDescribesItselfInLatin1IsServed) {
  AddDecode({.model_name = "caf\xE9", .chat_template = "\xE9"});
  grpc::ClientContext context;
  v1::GetModelResponse model;
  const grpc::Status status = stub_->GetModel(&context, v1::GetModelRequest(), &model);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(model.name(), "caf\xEF\xBF\xBD");
  EXPECT_FALSE(model.has_chat_template());
  EXPECT_EQ(Generate(LongPrompt()).text, "abc");
}

}  // namespace
}  // namespace baton
