#include "engine/handoff_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 100;

HandoffManifest FullManifest(int32_t choices = 1) {
  HandoffManifest manifest;
  for (int32_t i = 0; i < choices; ++i) {
    DrawnToken& drawn = manifest.drawn.emplace_back();
    drawn.token = 42 + i;
    drawn.logits_hash = 0x0123456789abcdefull + static_cast<uint64_t>(i);
    drawn.detail.logprob = -1.5f - static_cast<float>(i);
    drawn.detail.top = {{.token = 42, .logprob = -1.5f}, {.token = i, .logprob = -2.5f}};
  }
  manifest.prefill.cached_tokens = 16;
  manifest.prefill.computed_tokens = 17;
  manifest.prefill.chunks = 3;
  manifest.prefill.queue_us = 400;
  manifest.prefill.prefill_us = 500;
  return manifest;
}

HandoffManifest ChunkedManifest(int32_t choices) {
  HandoffManifest manifest = FullManifest(choices);
  manifest.chunked = true;
  manifest.prefill.chunk = {.chunks = 1,
                            .hits = 2,
                            .repaired_tokens = 3,
                            .pulled_bytes = 4,
                            .lookup_us = 5,
                            .compute_us = 6,
                            .place_us = 7,
                            .repair_us = 8,
                            .wake_us = 9};
  return manifest;
}

TEST(HandoffManifest, CarriesTheLedgerOfAChunkedPrompt) {
  for (const int32_t choices : {1, 2, kMaxChoices}) {
    const std::string bytes = EncodeManifest(ChunkedManifest(choices));
    EXPECT_EQ(bytes[0], 3);
    const auto decoded = DecodeManifest(bytes, kVocabulary);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(decoded->chunked);
    EXPECT_EQ(decoded->drawn.size(), static_cast<size_t>(choices));
    EXPECT_EQ(decoded->drawn.back().token, 41 + choices);
    EXPECT_EQ(decoded->prefill.chunks, 3);
    const ChunkLedger& chunk = decoded->prefill.chunk;
    EXPECT_EQ(chunk.chunks, 1);
    EXPECT_EQ(chunk.hits, 2);
    EXPECT_EQ(chunk.repaired_tokens, 3);
    EXPECT_EQ(chunk.pulled_bytes, 4);
    EXPECT_EQ(chunk.lookup_us, 5);
    EXPECT_EQ(chunk.compute_us, 6);
    EXPECT_EQ(chunk.place_us, 7);
    EXPECT_EQ(chunk.repair_us, 8);
    EXPECT_EQ(chunk.wake_us, 9);
  }
}

TEST(HandoffManifest, DecodesToWhatWasEncoded) {
  for (const int32_t choices : {1, 2, kMaxChoices}) {
    SCOPED_TRACE(choices);
    const HandoffManifest manifest = FullManifest(choices);
    const auto decoded = DecodeManifest(EncodeManifest(manifest), kVocabulary);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(decoded->drawn.size(), manifest.drawn.size());
    for (int32_t i = 0; i < choices; ++i) {
      EXPECT_EQ(decoded->drawn[i].token, manifest.drawn[i].token);
      EXPECT_EQ(decoded->drawn[i].logits_hash, manifest.drawn[i].logits_hash);
      EXPECT_EQ(decoded->drawn[i].detail.logprob, manifest.drawn[i].detail.logprob);
      EXPECT_EQ(decoded->drawn[i].detail.top, manifest.drawn[i].detail.top);
    }
    EXPECT_EQ(decoded->prefill.cached_tokens, 16);
    EXPECT_EQ(decoded->prefill.computed_tokens, 17);
    EXPECT_EQ(decoded->prefill.chunks, 3);
    EXPECT_EQ(decoded->prefill.queue_us, 400);
    EXPECT_EQ(decoded->prefill.prefill_us, 500);
  }
}

TEST(HandoffManifest, RefusesEveryOtherLength) {
  for (const HandoffManifest& manifest :
       {FullManifest(1), FullManifest(3), ChunkedManifest(1), ChunkedManifest(3)}) {
    const std::string bytes = EncodeManifest(manifest);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_EQ(DecodeManifest(bytes.substr(0, length), kVocabulary).status().code(),
                absl::StatusCode::kDataLoss)
          << length;
    }
    EXPECT_EQ(DecodeManifest(bytes + '\0', kVocabulary).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(HandoffManifest, OneTokenIsWrittenAsBeforeThereWereSeveral) {
  const std::string one = EncodeManifest(FullManifest(1));
  EXPECT_EQ(one[0], 1);
  const std::string two = EncodeManifest(FullManifest(2));
  EXPECT_EQ(two[0], 2);
  EXPECT_EQ(two.substr(1, one.size() - 1), one.substr(1));
}

TEST(HandoffManifest, RefusesMoreTokensThanAnyRequestMayHave) {
  const size_t before = EncodeManifest(FullManifest(1)).size();
  for (const uint32_t further : {0u, 1u, uint32_t{kMaxChoices}, 0xFFFFFFFFu}) {
    std::string bytes = EncodeManifest(FullManifest(3));
    std::memcpy(bytes.data() + before, &further, sizeof(further));
    EXPECT_EQ(DecodeManifest(bytes, kVocabulary).status().code(), absl::StatusCode::kDataLoss)
        << further;
  }
}

TEST(HandoffManifest, NamesAnotherVersion) {
  std::string bytes = EncodeManifest(FullManifest());
  bytes[0] = 9;
  EXPECT_THAT(DecodeManifest(bytes, kVocabulary).status().message(),
              HasSubstr("version 9, expected 1 to 3"));
}

TEST(HandoffManifest, RefusesTokensOutsideTheVocabulary) {
  for (const TokenId token : {-1, kVocabulary}) {
    HandoffManifest manifest = FullManifest();
    manifest.drawn[0].token = token;
    EXPECT_EQ(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().code(),
              absl::StatusCode::kInvalidArgument);
    manifest = FullManifest();
    manifest.drawn[0].detail.top[1].token = token;
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().message(),
                HasSubstr("outside the vocabulary of 100"));
    manifest = FullManifest(3);
    manifest.drawn[2].token = token;
    EXPECT_EQ(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(HandoffManifest, RefusesMoreAlternativesThanAnyRequestMayHave) {
  HandoffManifest manifest = FullManifest();
  manifest.drawn[0].detail.top.assign(1000, {.token = 1, .logprob = 0});
  EXPECT_EQ(DecodeManifest(EncodeManifest(manifest), kVocabulary).status().code(),
            absl::StatusCode::kDataLoss);
}

// Any input gives an error or a valid manifest.
TEST(HandoffManifest, SurvivesDamage) {
  const std::string wholes[] = {EncodeManifest(FullManifest(1)), EncodeManifest(FullManifest(4)),
                                EncodeManifest(ChunkedManifest(2))};
  int accepted = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string bytes = wholes[seed % std::size(wholes)];
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 20));
    const auto decoded = DecodeManifest(bytes, kVocabulary);
    if (!decoded.ok()) continue;
    ++accepted;
    EXPECT_TRUE(!decoded->drawn.empty() && decoded->drawn.size() <= kMaxChoices);
    for (const DrawnToken& drawn : decoded->drawn) {
      EXPECT_TRUE(drawn.token >= 0 && drawn.token < kVocabulary);
      EXPECT_LE(drawn.detail.top.size(), 64u);
    }
  }
  EXPECT_GT(accepted, 0);  // damaged figures are found by the transport's CRC, not here
}

}  // namespace
}  // namespace baton
