#include "router/grpc/router_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "rpc/prompt_chunks_wire.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxPromptBytes = 100;
constexpr int32_t kContextLength = 64;
constexpr RequestLimits kOfNoModel{.max_prompt_bytes = kMaxPromptBytes};
constexpr RequestLimits kLimits{.max_prompt_bytes = kMaxPromptBytes,
                                .context_length = kContextLength};

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// Of the first 256 tokens, token b is byte b.
ModelDescription ByteModel() {
  ModelDescription description;
  description.context_length = kContextLength;
  description.tokenizer.model = "gpt2";
  description.tokenizer.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    description.tokenizer.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  description.tokenizer.token_types.assign(256, 1);
  return description;
}

TEST(RouterWire, AReportSaysWhichModelAndWhetherThereIsAPrefixCache) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  request.mutable_status()->set_model_name("Smol");
  request.mutable_fingerprint()->set_model("abc");
  const absl::StatusOr<WorkerReport> without = ReportFromWire(request);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->model, "abc");
  EXPECT_EQ(without->model_name, "Smol");
  EXPECT_TRUE(without->prefix_cache) << "older workers without the field have a prefix cache";
  for (const bool keeps : {false, true}) {
    request.mutable_status()->mutable_pool()->set_prefix_cache(keeps);
    EXPECT_EQ(ReportFromWire(request)->prefix_cache, keeps);
  }
}

TEST(RouterWire, AReportSaysWhatTheWorkerCanDoWithChunkedPrompts) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->chunks, nullptr) << "older workers without the field";
  request.mutable_status()->mutable_prompt_chunks()->set_refusal("windows");
  EXPECT_EQ(ReportFromWire(request)->chunks->refusal, "windows");
}

TEST(RouterWire, BlockSizeAndLayoutAreSentBesideTheFingerprint) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  request.mutable_status()->mutable_pool()->set_block_size(16);
  request.mutable_fingerprint()->set_model("abc");
  request.mutable_fingerprint()->set_layout("block-major");
  request.mutable_fingerprint()->set_block_size(16);
  const absl::StatusOr<WorkerReport> one = ReportFromWire(request);
  request.mutable_status()->mutable_pool()->set_block_size(32);
  request.mutable_fingerprint()->set_layout("layer-major");
  request.mutable_fingerprint()->set_block_size(32);
  const absl::StatusOr<WorkerReport> other = ReportFromWire(request);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->fingerprint, other->fingerprint);
  EXPECT_EQ(other->pool_layout, "layer-major");
  EXPECT_EQ(other->block_size, 32);
  request.mutable_fingerprint()->set_kv_type("int8");
  EXPECT_NE(ReportFromWire(request)->fingerprint, one->fingerprint);
}

TEST(RouterWire, TheFingerprintNamesTheNumericsAndNotTheBackend) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  v1::KvFingerprint& fingerprint = *request.mutable_fingerprint();
  fingerprint.set_model("abc");
  fingerprint.set_kv_type("f16");
  fingerprint.set_backend("cpu");
  fingerprint.set_numerics_revision(1);  // as builds without the numerics name do
  fingerprint.set_layers(2);
  fingerprint.set_kv_heads(1);
  fingerprint.set_head_dim(16);
  fingerprint.set_rope("none");
  const absl::StatusOr<WorkerReport> before = ReportFromWire(request);
  EXPECT_EQ(before->fingerprint,
            "model abc, KV type f16, numerics r1, 2 layers, 1 KV heads of 16, RoPE none");
  EXPECT_EQ(before->backend, "cpu");
  fingerprint.set_numerics("r1");
  EXPECT_EQ(ReportFromWire(request)->fingerprint, before->fingerprint);
  fingerprint.set_backend("cuda");
  EXPECT_EQ(ReportFromWire(request)->fingerprint, before->fingerprint);
  EXPECT_EQ(ReportFromWire(request)->backend, "cuda");
  fingerprint.set_numerics("half");
  EXPECT_THAT(ReportFromWire(request)->fingerprint, HasSubstr("numerics half,"));
}

TEST(RouterWire, AReportCountsTheKvGroupsAndAnOlderWorkerHasOne) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->kv_groups, 1);
  for (const int32_t groups : {1, 2, 3}) {
    request.mutable_status()->mutable_pool()->add_groups();
    EXPECT_EQ(ReportFromWire(request)->kv_groups, groups);
  }
}

TEST(RouterWire, ProtocolVersionsAreARange) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->protocol, (ProtocolRange{0, 0}));
  request.mutable_fingerprint()->set_protocol_version(6);
  EXPECT_EQ(ReportFromWire(request)->protocol, (ProtocolRange{5, 6}))
      << "includes the version before";
  request.mutable_fingerprint()->set_oldest_protocol_version(3);
  EXPECT_EQ(ReportFromWire(request)->protocol, (ProtocolRange{3, 6}));
}

TEST(RouterWire, AHeartbeatHasABound) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  request.mutable_status()->set_conservation_error(std::string(65'000, 'x'));
  EXPECT_TRUE(ReportFromWire(request).ok());
  request.mutable_fingerprint()->set_rope(std::string(1'000, 'x'));
  EXPECT_THAT(ReportFromWire(request).status().ToString(),
              testing::HasSubstr("bytes; at most 65536 are allowed"));
}

TEST(RouterWire, AReportSaysHowShortAPrefixTheWorkerUses) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->min_prefix_tokens, 0);
  request.mutable_status()->mutable_pool()->set_min_prefix_tokens(256);
  EXPECT_EQ(ReportFromWire(request)->min_prefix_tokens, 256);
  request.mutable_status()->mutable_pool()->set_min_prefix_tokens(-1);
  EXPECT_EQ(ReportFromWire(request)->min_prefix_tokens, 0) << "a worker's value is not trusted";
}

TEST(RouterWire, TooManyTokenIdsAreRefusedBeforeTheyAreCopied) {
  v1::GenerateRequest request;
  auto& ids = *request.mutable_prompt_token_ids()->mutable_ids();
  ids.Resize(kContextLength - 1, 7);
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  ids.Add(7);
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("the prompt has 64 tokens; the context of 64"));
  EXPECT_TRUE(CheckRequest(request, kOfNoModel).ok());
  ids.Resize((1 << 20) + 1, 7);
  EXPECT_THAT(Refusal(CheckRequest(request, kOfNoModel)),
              HasSubstr("prompt_token_ids has 1048577 entries; at most 1048576"));
}

TEST(RouterWire, TooManyMessagesAreRefusedBeforeTheyAreCopied) {
  v1::GenerateRequest request;
  for (int i = 0; i < 4096; ++i) request.mutable_messages()->add_messages();
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.mutable_messages()->add_messages();
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("messages has 4097 entries; at most 4096"));

  const auto model = *ServedModel::Create(ByteModel());
  EXPECT_THAT(
      Refusal(EncodeMessagesFromWire(*model, LimitsFor(*model, kMaxPromptBytes), request.messages())
                  .status()),
      HasSubstr("at most 4096"));
}

TEST(RouterWire, TheBytesOfAPromptAndOfMessagesAreBounded) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(101, 'x'));
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("the prompt has 101 bytes; at most 100"));
  v1::ChatMessage* message = request.mutable_messages()->add_messages();
  message->set_role("user");
  message->set_content(std::string(97, 'x'));
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("the prompt has 101 bytes; at most 100"));
  message->mutable_content()->pop_back();
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
}

// ---- prompt chunks
// --------------------------------------------------------------------------------

absl::StatusOr<EncodedPrompt> Encoded(const v1::GenerateRequest& request,
                                      std::string_view separator = "") {
  const auto model = *ServedModel::Create(ByteModel());
  return PromptFromWire(*model, LimitsFor(*model, kMaxPromptBytes), separator, request);
}

v1::GenerateRequest InParts(const ChunkedText& parts) {
  v1::GenerateRequest request;
  *request.mutable_parts() = PartsToWire(parts);
  return request;
}

std::vector<TokenId> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

TEST(RouterWire, PartsBecomeAChunkedPrompt) {
  v1::GenerateRequest request =
      InParts({.system = "S", .chunks = {"AB", std::vector<TokenId>{7}}, .question = "Q"});
  request.set_chunk_scope("alone");
  const absl::StatusOr<EncodedPrompt> prompt = Encoded(request);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(*prompt->chunked, (ChunkedPrompt{.options = {.scope = ChunkScope::kAlone},
                                             .system = Bytes("S"),
                                             .chunks = {Bytes("AB"), {7}},
                                             .question = Bytes("Q")}));
}

TEST(RouterWire, ARequestsSeparatorReplacesTheRouters) {
  v1::GenerateRequest request;
  request.set_prompt("S##A|Q");
  EXPECT_FALSE(Encoded(request)->chunked.has_value());
  EXPECT_EQ(Encoded(request, "##")->chunked->question, Bytes("A|Q"));
  request.set_chunk_separator("|");
  EXPECT_EQ(Encoded(request, "##")->chunked->question, Bytes("Q"));
  request.set_chunk_separator("");
  EXPECT_FALSE(Encoded(request, "##")->chunked.has_value());
}

TEST(RouterWire, PartsGivenAsSuchAreNotSplit) {
  const absl::StatusOr<EncodedPrompt> prompt =
      Encoded(InParts({.system = "S#", .chunks = {"A#B"}, .question = "Q#"}), "#");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->chunked->chunks, (std::vector<std::vector<TokenId>>{Bytes("A#B")}));
}

TEST(RouterWire, BadPartsAreRefusedByPartValueAndLimit) {
  const std::string fifty(50, 'x');
  EXPECT_THAT(
      Refusal(Encoded(InParts({.system = "S", .chunks = {"A", ""}, .question = "Q"})).status()),
      HasSubstr("part 2 (chunks[1]) has 0 bytes"));
  EXPECT_THAT(
      Refusal(
          Encoded(InParts({.system = "S", .chunks = {std::vector<TokenId>{256}}, .question = "Q"}))
              .status()),
      HasSubstr("chunks[0][0] is 256; [0, 255] is allowed"));
  v1::GenerateRequest request = InParts({.system = "S", .chunks = {fifty, fifty}, .question = "Q"});
  EXPECT_TRUE(Encoded(request).ok()) << "overlapping chunks share positions";
  request.set_chunk_positions("sequential");
  EXPECT_THAT(Refusal(Encoded(request).status()),
              HasSubstr("part 2 (chunks[1]) reaches position 100; the context of 64 tokens ends at "
                        "position 63"));
  request.set_chunk_positions("x");
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)), HasSubstr("chunk_positions is \"x\""));
}

TEST(RouterWire, SizesOfPartsAreCheckedBeforeTheyAreCopied) {
  v1::GenerateRequest request = InParts({.system = "", .chunks = {}, .question = "Q"});
  for (int i = 0; i < 500; ++i) request.mutable_parts()->add_chunks();
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
  request.mutable_parts()->add_chunks();
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("chunks has 501 entries; at most 500"));
  request =
      InParts({.system = std::string(50, 'x'), .chunks = {std::string(50, 'x')}, .question = "Q"});
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("the prompt has 101 bytes; at most 100"));
  request = InParts({.system = "", .chunks = {}, .question = "Q"});
  request.mutable_parts()->mutable_system()->mutable_token_ids()->mutable_ids()->Resize(
      (1 << 20) + 1, 7);
  EXPECT_THAT(Refusal(CheckRequest(request, kLimits)),
              HasSubstr("the prompt has 1048577 token ids; at most 1048576"));
  v1::GenerateRequest messages;
  v1::ChatMessage* const message = messages.mutable_messages()->add_messages();
  message->set_content(std::string(50, 'x'));
  *message->add_chunks() = PartToWire(std::string(51, 'x'));
  EXPECT_THAT(Refusal(CheckRequest(messages, kLimits)),
              HasSubstr("the prompt has 101 bytes; at most 100"));
  v1::GenerateRequest separator;
  separator.set_prompt("x");
  separator.set_chunk_separator(std::string(257, '#'));
  EXPECT_THAT(Refusal(CheckRequest(separator, kLimits)),
              HasSubstr("chunk_separator has 257 bytes; at most 256"));
}

TEST(RouterWire, ATextWithASeparatorMayExceedTheContext) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(45, 'x') + "#" + std::string(45, 'y') + "#Q");
  EXPECT_THAT(Refusal(Encoded(request).status()), HasSubstr("cannot hold it"));
  request.set_chunk_separator("#");
  EXPECT_THAT(Refusal(Encoded(request).status()),
              HasSubstr("part 1 (chunks[0]) reaches position 89"));
  request.set_prompt("#" + std::string(45, 'x') + "#" + std::string(45, 'y') + "#Q");
  const auto model = *ServedModel::Create(ByteModel());
  EXPECT_TRUE(CheckRequest(request, LimitsFor(*model, kMaxPromptBytes)).ok());
  EXPECT_TRUE(Encoded(request).ok());
}

TEST(RouterWire, DetokenizedIdsAreBounded) {
  const auto model = *ServedModel::Create(ByteModel());
  v1::DetokenizeRequest request;
  request.mutable_ids()->Resize(static_cast<int>(kMaxDetokenizeIds), 'a');
  EXPECT_EQ(TextFromWire(model->tokenizer(), request)->size(), size_t{kMaxDetokenizeIds});
  request.add_ids('a');
  EXPECT_THAT(Refusal(TextFromWire(model->tokenizer(), request).status()),
              HasSubstr("ids has 1000001 entries; at most 1000000"));
}

TEST(RouterWire, DetokenizedBytesAreBoundedBeforeAndAfterReplacement) {
  ModelDescription description = ByteModel();
  description.tokenizer.tokens.push_back(std::string(1024, 'x'));
  std::string bad;  // each byte becomes U+FFFD
  for (int i = 0; i < 1024; ++i) bad += ByteToAlphabet(0xff);
  description.tokenizer.tokens.push_back(bad);
  description.tokenizer.token_types.insert(description.tokenizer.token_types.end(), 2, 1);
  const auto model = *ServedModel::Create(std::move(description));
  v1::DetokenizeRequest request;
  request.mutable_ids()->Resize(16 << 10, 256);
  EXPECT_EQ(TextFromWire(model->tokenizer(), request)->size(), size_t{kMaxDetokenizedBytes});
  request.add_ids(256);
  EXPECT_THAT(Refusal(TextFromWire(model->tokenizer(), request).status()),
              HasSubstr("at most 16777216"));
  request.mutable_ids()->Clear();
  request.mutable_ids()->Resize(8 << 10, 257);
  EXPECT_THAT(Refusal(TextFromWire(model->tokenizer(), request).status()),
              HasSubstr("has 25165824 bytes; at most 16777216"));
}

TEST(RouterWire, TheIndexNamesOnlyRegisteredWorkers) {
  FleetIndexStatus status{.units = 7, .memberships = 9, .max_units = 100, .workers = {}};
  status.workers.push_back({.worker = WorkerNumber(3),
                            .epoch = Epoch(11),
                            .followed = true,
                            .units = 5,
                            .sequence = 42,
                            .gaps = 1,
                            .snapshots = 2,
                            .trouble = ""});
  status.workers.push_back({.worker = WorkerNumber(4), .trouble = "gone \xff"});
  status.workers.push_back({.worker = WorkerNumber(5), .trouble = "no \xff"});
  std::vector<WorkerRecord> workers(2);
  workers[0].number = WorkerNumber(5);
  workers[0].report.id = "five";
  workers[1].number = WorkerNumber(3);
  workers[1].report.id = "three";
  const v1::IndexStatus wire = IndexStatusToWire(status, 8, workers);
  EXPECT_EQ(wire.units(), 7);
  EXPECT_EQ(wire.memberships(), 9);
  EXPECT_EQ(wire.max_units(), 100);
  EXPECT_EQ(wire.predicted_units(), 8);
  ASSERT_EQ(wire.workers_size(), 2);
  EXPECT_EQ(wire.workers(0).worker_id(), "three");
  EXPECT_EQ(wire.workers(0).epoch(), 11u);
  EXPECT_TRUE(wire.workers(0).followed());
  EXPECT_EQ(wire.workers(0).units(), 5);
  EXPECT_EQ(wire.workers(0).sequence(), 42u);
  EXPECT_EQ(wire.workers(0).gaps(), 1);
  EXPECT_EQ(wire.workers(0).snapshots(), 2);
  EXPECT_EQ(wire.workers(1).worker_id(), "five");
  EXPECT_EQ(wire.workers(1).trouble(), "no \uFFFD");
}

}  // namespace
}  // namespace baton
