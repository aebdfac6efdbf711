#include "text/prompt_split.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace baton {
namespace {

ChatMessage Message(const std::string& role, const std::string& content,
                    std::vector<PromptPart> chunks = {}) {
  return {.role = role, .content = content, .name = std::nullopt, .chunks = std::move(chunks)};
}

std::vector<std::string> Parts(const ChunkedText& text) {
  std::vector<std::string> out = {std::get<std::string>(text.system)};
  for (const PromptPart& chunk : text.chunks) out.push_back(std::get<std::string>(chunk));
  out.push_back(std::get<std::string>(text.question));
  return out;
}

std::vector<std::string> Split(std::string_view text, std::string_view separator = "##") {
  const auto parts = SplitPrompt(text, separator);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.ok() && *parts ? Parts(**parts) : std::vector<std::string>();
}

absl::Status Refusal(const std::string& text) { return absl::InvalidArgumentError(text); }

using Strings = std::vector<std::string>;

TEST(SplitPrompt, TheFirstPartIsTheSystemPartAndTheLastTheQuestion) {
  EXPECT_EQ(Split("S##A##B##Q"), (Strings{"S", "A", "B", "Q"}));
}

TEST(SplitPrompt, OneSeparatorDividesSystemAndQuestion) {
  EXPECT_EQ(Split("S##Q"), (Strings{"S", "Q"}));
}

TEST(SplitPrompt, WithoutASeparatorThereAreNoParts) {
  EXPECT_EQ(Split("S#A#B"), Strings());
  EXPECT_EQ(Split("", "##"), Strings());
  EXPECT_EQ(Split("S##A##Q", ""), Strings());
}

TEST(SplitPrompt, NothingIsTrimmed) {
  EXPECT_EQ(Split(" S \n## A\t##\n\n##Q "), (Strings{" S \n", " A\t", "\n\n", "Q "}));
}

TEST(SplitPrompt, SeparatorsAreFoundFromTheLeftAndDoNotOverlap) {
  EXPECT_EQ(Split("S###Q"), (Strings{"S", "#Q"}));
  EXPECT_EQ(Split("aXaXaXa", "XaX"), (Strings{"a", "aXa"}));
}

TEST(SplitPrompt, TheSystemPartMayBeEmpty) { EXPECT_EQ(Split("##A##Q"), (Strings{"", "A", "Q"})); }

TEST(SplitPrompt, OtherEmptyPartsAreRefusedByTheirIndex) {
  EXPECT_EQ(SplitPrompt("S##A####Q", "##").status(),
            Refusal("part 2 (chunks[1]) has 0 bytes; every part but the system part needs at "
                    "least 1"));
  EXPECT_EQ(SplitPrompt("S##A##", "##").status(),
            Refusal("part 2 (question) has 0 bytes; every part but the system part needs at "
                    "least 1"));
  EXPECT_EQ(SplitPrompt("##", "##").status(),
            Refusal("part 1 (question) has 0 bytes; every part but the system part needs at "
                    "least 1"));
}

std::string WithChunks(size_t chunks) {
  std::string text = "S|";
  for (size_t i = 0; i < chunks; ++i) text += "A|";
  return text + "Q";
}

TEST(SplitPrompt, FiveHundredChunksAreTheMost) {
  EXPECT_EQ(Split(WithChunks(500), "|").size(), 502U);
  EXPECT_EQ(SplitPrompt(WithChunks(501), "|").status(),
            Refusal("chunks has 501 entries; at most 500 are allowed"));
}

TEST(SplitPrompt, BadSeparatorsAreRefused) {
  EXPECT_EQ(SplitPrompt("S", std::string(257, '#')).status(),
            Refusal("chunk_separator has 257 bytes; at most 256 are allowed"));
  EXPECT_EQ(SplitPrompt("S", "#\xC3").status(),
            Refusal("chunk_separator is not valid UTF-8 at byte 1 of 2"));
}

TEST(SplitPrompt, JoinedWithSeparatorsThePartsAreTheText) {
  const uint32_t seed = 17;
  std::mt19937 random(seed);
  SCOPED_TRACE(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = 0; i < 12; ++i) text += "ab#"[random() % 3];
    const std::string separator = std::vector<std::string>{"#", "##", "a#a"}[random() % 3];
    const auto parts = SplitPrompt(text, separator);
    if (!parts.ok()) continue;
    if (!*parts) {
      EXPECT_EQ(text.find(separator), std::string::npos) << text;
      continue;
    }
    std::string joined;
    for (const std::string& part : Parts(**parts)) {
      EXPECT_EQ(part.find(separator), std::string::npos) << text;
      joined += part + separator;
    }
    EXPECT_EQ(joined, text + separator);
  }
}

TEST(SplitMessages, TheMessageWithChunksKeepsItsListAsItIs) {
  const std::vector<ChatMessage> messages = {Message("system", "S##x"),
                                             Message("user", "Q##y", {"A##z", "B"})};
  const auto split = SplitMessages(messages, "##");
  ASSERT_TRUE(split.ok() && *split) << split.status();
  EXPECT_EQ((*split)->message, 1U);
  EXPECT_EQ(Parts((*split)->parts), (Strings{"", "A##z", "B", "Q##y"}));
}

TEST(SplitMessages, AnyRoleMayHaveChunks) {
  const std::vector<ChatMessage> messages = {Message("system", "S", {std::vector<TokenId>{1, 2}}),
                                             Message("user", "Q")};
  const auto split = SplitMessages(messages, "");
  ASSERT_TRUE(split.ok() && *split) << split.status();
  EXPECT_EQ((*split)->message, 0U);
  EXPECT_EQ((*split)->parts.chunks, (std::vector<PromptPart>{std::vector<TokenId>{1, 2}}));
}

TEST(SplitMessages, ChunksInTwoMessagesAreRefused) {
  const std::vector<ChatMessage> messages = {Message("user", "a", {"A"}), Message("assistant", "b"),
                                             Message("user", "c", {"B"})};
  EXPECT_EQ(SplitMessages(messages, "").status(),
            Refusal("messages[0] and messages[2] have chunks; at most 1 message may have them"));
}

TEST(SplitMessages, TheFirstUserMessageWithTheSeparatorIsSplit) {
  const std::vector<ChatMessage> messages = {
      Message("system", "no##split"), Message("user", "first"), Message("assistant", "no##split"),
      Message("user", "S##A##Q"), Message("user", "later##text")};
  const auto split = SplitMessages(messages, "##");
  ASSERT_TRUE(split.ok() && *split) << split.status();
  EXPECT_EQ((*split)->message, 3U);
  EXPECT_EQ(Parts((*split)->parts), (Strings{"S", "A", "Q"}));
}

TEST(SplitMessages, WithoutChunksOrSeparatorThereAreNoParts) {
  const std::vector<ChatMessage> messages = {Message("system", "a##b"), Message("user", "c")};
  for (const char* separator : {"", "##"}) {
    const auto split = SplitMessages(messages, separator);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_FALSE(*split);
  }
}

TEST(SplitMessages, TooManyChunksAndEmptyPartsAreRefused) {
  EXPECT_EQ(SplitMessages(std::vector{Message("user", "Q", std::vector<PromptPart>(501, "A"))}, "")
                .status(),
            Refusal("chunks has 501 entries; at most 500 are allowed"));
  EXPECT_EQ(SplitMessages(std::vector{Message("user", "", {"A"})}, "").status(),
            Refusal("part 2 (question) has 0 bytes; every part but the system part needs at "
                    "least 1"));
  EXPECT_EQ(SplitMessages(std::vector{Message("user", "Q", {"A", ""})}, "").status(),
            Refusal("part 2 (chunks[1]) has 0 bytes; every part but the system part needs at "
                    "least 1"));
}

}  // namespace
}  // namespace baton
