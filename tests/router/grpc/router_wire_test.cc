#include "router/grpc/router_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/router/byte_model.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
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

TEST(RouterWire, TheRoleOfNowReplacesTheRoleAtTheStart) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->role, WorkerRole::kDecode);
  EXPECT_FALSE(ReportFromWire(request)->changes_role) << "an older worker";
  request.set_current_role(v1::WORKER_ROLE_PREFILL);
  EXPECT_EQ(ReportFromWire(request)->role, WorkerRole::kPrefill);
  EXPECT_TRUE(ReportFromWire(request)->changes_role);
  request.set_current_role(static_cast<v1::WorkerRole>(9));
  EXPECT_THAT(Refusal(ReportFromWire(request).status()), HasSubstr("current_role is 9"));
}

TEST(RouterWire, AReportHasThePlaceOfThisRouter) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->routers, 1) << "an older worker";
  request.set_routers(4);
  request.set_router_place(2);
  EXPECT_EQ(ReportFromWire(request)->routers, 4);
  EXPECT_EQ(ReportFromWire(request)->router_place, 2);
}

TEST(RouterWire, AReportHasThePromptTokensThatAreLeft) {
  v1::HeartbeatRequest request;
  request.mutable_status()->set_role(v1::WORKER_ROLE_DECODE);
  EXPECT_EQ(ReportFromWire(request)->prompt_tokens_left, std::nullopt) << "an older worker";
  request.mutable_status()->set_prompt_tokens_left(0);
  EXPECT_EQ(ReportFromWire(request)->prompt_tokens_left, 0);
  request.mutable_status()->set_prompt_tokens_left(1234);
  EXPECT_EQ(ReportFromWire(request)->prompt_tokens_left, 1234);
  request.mutable_status()->set_prompt_tokens_left(-5);
  EXPECT_EQ(ReportFromWire(request)->prompt_tokens_left, 0);
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

TEST(RouterWire, DetokenizedIdsAreBounded) {
  const auto model = *ServedModel::Create(ByteModel(64));
  v1::DetokenizeRequest request;
  request.mutable_ids()->Resize(static_cast<int>(kMaxDetokenizeIds), 'a');
  EXPECT_EQ(TextFromWire(model->tokenizer(), request)->size(), size_t{kMaxDetokenizeIds});
  request.add_ids('a');
  EXPECT_THAT(Refusal(TextFromWire(model->tokenizer(), request).status()),
              HasSubstr("ids has 1000001 entries; at most 1000000"));
}

TEST(RouterWire, DetokenizedBytesAreBoundedBeforeAndAfterReplacement) {
  ModelDescription description = ByteModel(64);
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

TEST(RouterWire, ATenantHasItsUseAndItsLimits) {
  const TenantUse use = {.tenant = "a\xff",
                         .limits = {.tokens_per_minute = 9, .weight = 0.5},
                         .running = 1,
                         .waiting = 2,
                         .requests = 3,
                         .refused = 4,
                         .tokens = 5};
  v1::TenantStatus wire = TenantToWire(use);
  EXPECT_EQ(wire.tenant(), "a\uFFFD");
  EXPECT_EQ(wire.running(), 1);
  EXPECT_EQ(wire.waiting(), 2);
  EXPECT_EQ(wire.requests(), 3);
  EXPECT_EQ(wire.refused(), 4);
  EXPECT_EQ(wire.tokens(), 5);
  EXPECT_EQ(wire.weight(), 0.5);
  EXPECT_EQ(wire.tokens_per_minute(), 9);
  EXPECT_EQ(wire.requests_per_minute(), 0);
  EXPECT_FALSE(wire.has_max_priority());
  EXPECT_EQ(TenantToWire({.limits = {.max_priority = -2}}).max_priority(), -2);
  EXPECT_EQ(wire.kv_share(), 0);
  EXPECT_EQ(TenantToWire({.limits = {.kv_share = 0.25}}).kv_share(), 0.25);
}

}  // namespace
}  // namespace baton
