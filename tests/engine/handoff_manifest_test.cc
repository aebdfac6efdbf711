#include "engine/handoff_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 100;

HandoffManifest FullManifest() {
  HandoffManifest manifest;
  manifest.first_token = 42;
  manifest.logits_hash = 0x0123456789abcdefull;
  manifest.detail.logprob = -1.5f;
  manifest.detail.top = {{.token = 42, .logprob = -1.5f}, {.token = 0, .logprob = -2.5f}};
  manifest.prefill.cached_tokens = 16;
  manifest.prefill.computed_tokens = 17;
  manifest.prefill.chunks = 3;
  manifest.prefill.queue_us = 400;
  manifest.prefill.prefill_us = 500;
  return manifest;
}

TEST(HandoffManifest, DecodesToWhatWasEncoded) {
  const HandoffManifest manifest = FullManifest();
  const auto decoded = DecodeManifest(EncodeManifest(manifest), kVocabulary);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->first_token, manifest.first_token);
  EXPECT_EQ(decoded->logits_hash, manifest.logits_hash);
  EXPECT_EQ(decoded->detail.logprob, manifest.detail.logprob);
  EXPECT_EQ(decoded->detail.top, manifest.detail.top);
  EXPECT_EQ(decoded->prefill.cached_tokens, 16);
  EXPECT_EQ(decoded->prefill.computed_tokens, 17);
  EXPECT_EQ(decoded->prefill.chunks, 3);
  EXPECT_EQ(decoded->prefill.queue_us, 400);
  EXPECT_EQ(decoded->prefill.prefill_us, 500);
}

TEST(HandoffManifest, RefusesEveryOtherLength) {
  const std::string bytes = EncodeManifest(FullManifest());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(DecodeManifest(bytes.substr(0, length), kVocabulary).status().code(),
              absl::StatusCode::kDataLoss)
        << length;
  }
  EXPECT_EQ(DecodeManifest(bytes + '\0', kVocabulary).status().code(), absl::StatusCode::kDataLoss);
}

TEST(HandoffManifest, NamesAnotherVersion) {
  std::string bytes = EncodeManifest(FullManifest());
  bytes[0] = 9;
  EXPECT_THAT(DecodeManifest(bytes, kVocabulary).status().message(),
              HasSubstr("version 9, expected 1"));
}

TEST(HandoffManifest, RefusesTokensOutsideTheVocabulary) {
  for (const TokenId token : {-1, kVocabulary}) {
    HandoffManifest manifest = FullManifest();
    manifest.first_token = token;
    EXPECT_EQ(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().code(),
              absl::StatusCode::kInvalidArgument);
    manifest = FullManifest();
    manifest.detail.top[1].token = token;
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().message(),
                HasSubstr("outside the vocabulary of 100"));
  }
}

TEST(HandoffManifest, RefusesMoreAlternativesThanAnyRequestMayHave) {
  HandoffManifest manifest = FullManifest();
  manifest.detail.top.assign(1000, {.token = 1, .logprob = 0});
  EXPECT_EQ(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().code(),
            absl::StatusCode::kDataLoss);
}

// Whatever a peer sends: a status, or a manifest that is valid.
TEST(HandoffManifest, SurvivesDamage) {
  const std::string whole = EncodeManifest(FullManifest());
  int accepted = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string bytes = whole;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 20));
    const auto decoded = DecodeManifest(bytes, kVocabulary);
    if (!decoded.ok()) continue;
    ++accepted;
    EXPECT_TRUE(decoded->first_token >= 0 && decoded->first_token < kVocabulary);
    EXPECT_LE(decoded->detail.top.size(), 64u);
  }
  EXPECT_GT(accepted, 0);  // damage to figures alone is not noticed here; the transport's CRC does
}

}  // namespace
}  // namespace baton
