#include "routing/heartbeat_report.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>
#include <string>

namespace baton {
namespace {

constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();

TEST(HeartbeatReport, CountsSequencesBlocksAndTokens) {
  const WorkerReport report = ReportOf({.id = "a",
                                        .address = "h:1",
                                        .role = WorkerRole::kPrefill,
                                        .epoch = Epoch(7),
                                        .model_name = "m",
                                        .draining = true,
                                        .waiting = 1,
                                        .running = 2,
                                        .waiting_for_kv = 3,
                                        .block_size = 16,
                                        .free_blocks = 10,
                                        .cached_blocks = 20,
                                        .retiring_blocks = 4,
                                        .limit_blocks = 100,
                                        .bytes_per_block = 1600,
                                        .kv_groups = 2,
                                        .paged = false,
                                        .min_prefix_tokens = 32,
                                        .context_length = 2048,
                                        .max_running = 8});
  EXPECT_EQ(report.id, "a");
  EXPECT_EQ(report.address, "h:1");
  EXPECT_EQ(report.role, WorkerRole::kPrefill);
  EXPECT_EQ(report.epoch, Epoch(7));
  EXPECT_EQ(report.model_name, "m");
  EXPECT_TRUE(report.draining);
  EXPECT_EQ(report.queued, 6);
  EXPECT_EQ(report.waiting, 1);
  EXPECT_EQ(report.available_blocks, 26);
  EXPECT_EQ(report.pool_tokens, 1600);
  EXPECT_EQ(report.kv_bytes_per_token, 100);
  EXPECT_EQ(report.kv_groups, 2);
  EXPECT_FALSE(report.paged);
  EXPECT_EQ(report.min_prefix_tokens, 32);
  EXPECT_EQ(report.context_length, 2048);
  EXPECT_EQ(report.max_running, 8);
}

TEST(HeartbeatReport, TakesRatesOnlyIfTheyAreNumbers) {
  EXPECT_EQ(ReportOf({.decode_tokens_per_s = 12.5}).decode_tokens_per_s, 12.5);
  EXPECT_EQ(ReportOf({.decode_tokens_per_s = -1}).decode_tokens_per_s, 0);
  EXPECT_EQ(ReportOf({.decode_tokens_per_s = std::numeric_limits<double>::quiet_NaN()})
                .decode_tokens_per_s,
            0);
  EXPECT_EQ(ReportOf({.decode_tokens_per_s = std::numeric_limits<double>::infinity()})
                .decode_tokens_per_s,
            1e9);
}

TEST(HeartbeatReport, ClampsThePromptTokensThatAreLeft) {
  EXPECT_EQ(ReportOf({}).prompt_tokens_left, std::nullopt) << "an older worker";
  EXPECT_EQ(ReportOf({.prompt_tokens_left = 0}).prompt_tokens_left, 0);
  EXPECT_EQ(ReportOf({.prompt_tokens_left = 5000}).prompt_tokens_left, 5000);
  EXPECT_EQ(ReportOf({.prompt_tokens_left = -1}).prompt_tokens_left, 0);
  EXPECT_EQ(
      ReportOf({.prompt_tokens_left = std::numeric_limits<int64_t>::max()}).prompt_tokens_left,
      1 << 30);
}

TEST(HeartbeatReport, SaysWhatTheWorkerCanDoWithChunkedPrompts) {
  EXPECT_EQ(ReportOf({}).chunks, nullptr) << "an older worker";
  const PromptChunkSupport support{.piece_tokens = 512, .refusal = "windows"};
  EXPECT_EQ(*ReportOf({.chunks = support}).chunks, support);
}

TEST(HeartbeatReport, AWorkerThatReportsNoRoutersHasThisOne) {
  EXPECT_EQ(ReportOf({}).routers, 1);
  EXPECT_EQ(ReportOf({}).router_place, 0);
  const WorkerReport report = ReportOf({.routers = 4, .router_place = 2});
  EXPECT_EQ(report.routers, 4);
  EXPECT_EQ(report.router_place, 2);
}

TEST(HeartbeatReport, AWorkerThatReportsNoGroupsHasOne) {
  EXPECT_EQ(ReportOf({}).kv_groups, 1);
  EXPECT_EQ(ReportOf({.kv_groups = 1}).kv_groups, 1);
  EXPECT_EQ(ReportOf({.kv_groups = 3}).kv_groups, 3);
}

TEST(HeartbeatReport, EveryNumberIsClampedToItsRange) {
  const WorkerReport low = ReportOf({.waiting = -kHuge,
                                     .running = -kHuge,
                                     .routers = -1,
                                     .router_place = -1,
                                     .block_size = -1,
                                     .free_blocks = -1,
                                     .retiring_blocks = kHuge,
                                     .limit_blocks = -1,
                                     .bytes_per_block = -1,
                                     .kv_groups = -1,
                                     .min_prefix_tokens = -1,
                                     .context_length = -1,
                                     .max_running = -1});
  EXPECT_EQ(low.queued, 0);
  EXPECT_EQ(low.block_size, 1);
  EXPECT_EQ(low.available_blocks, 0);
  EXPECT_EQ(low.pool_tokens, 0);
  EXPECT_EQ(low.kv_bytes_per_token, 0);
  EXPECT_EQ(low.routers, 1);
  EXPECT_EQ(low.router_place, 0);
  EXPECT_EQ(low.kv_groups, 1);
  EXPECT_EQ(low.min_prefix_tokens, 0);
  EXPECT_EQ(low.context_length, 0);
  EXPECT_EQ(low.max_running, 0);
  const WorkerReport high = ReportOf({.model_name = std::string(1000, 'x'),
                                      .waiting = kHuge,
                                      .running = kHuge,
                                      .waiting_for_kv = kHuge,
                                      .routers = kHuge,
                                      .router_place = kHuge,
                                      .block_size = kHuge,
                                      .free_blocks = kHuge,
                                      .cached_blocks = kHuge,
                                      .limit_blocks = kHuge,
                                      .bytes_per_block = std::numeric_limits<int64_t>::max(),
                                      .kv_groups = std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(high.model_name.size(), WorkerRegistry::kMaxNameBytes);
  EXPECT_EQ(high.queued, 1 << 30);
  EXPECT_EQ(high.block_size, 1 << 20);
  EXPECT_EQ(high.available_blocks, 1 << 30);
  EXPECT_EQ(high.pool_tokens, int64_t{kHuge} << 20);
  EXPECT_EQ(high.kv_bytes_per_token, 1 << 20);
  EXPECT_EQ(high.routers, 1024);
  EXPECT_EQ(high.router_place, 1023);
  EXPECT_EQ(high.kv_groups, 64);
}

TEST(HeartbeatReport, TheFingerprintHasWhatTheBitsDependOnAndTheModelIsSeparate) {
  const HeartbeatFingerprint fingerprint = {.model = "abc",
                                            .kv_type = "f16",
                                            .numerics = "r1",
                                            .layers = 2,
                                            .kv_heads = 1,
                                            .head_dim = 16,
                                            .rope = "none"};
  const WorkerReport report =
      ReportOf({.fingerprint = fingerprint, .backend = "cpu", .layout = "block-major"});
  EXPECT_EQ(report.model, "abc");
  EXPECT_EQ(report.fingerprint,
            "model abc, KV type f16, numerics r1, 2 layers, 1 KV heads of 16, RoPE none");
  EXPECT_EQ(report.fingerprint, FingerprintText(fingerprint));
  EXPECT_EQ(report.backend, "cpu");
  EXPECT_EQ(report.pool_layout, "block-major");
}

TEST(HeartbeatReport, TheFingerprintDistinguishesEveryField) {
  const std::string base = FingerprintText({});
  for (const HeartbeatFingerprint& other :
       std::initializer_list<HeartbeatFingerprint>{{.model = "x"},
                                                   {.kv_type = "x"},
                                                   {.numerics = "x"},
                                                   {.layers = 9},
                                                   {.kv_heads = 9},
                                                   {.head_dim = 9},
                                                   {.rope = "x"}}) {
    EXPECT_NE(FingerprintText(other), base);
  }
}

}  // namespace
}  // namespace baton
