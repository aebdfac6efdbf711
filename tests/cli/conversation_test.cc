#include "cli/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/jobs.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns "role: content" of each message.
std::vector<std::string> Shown(const Conversation& conversation) {
  std::vector<std::string> shown;
  for (const ChatMessage& message : conversation.messages()) {
    shown.push_back(message.role + ": " + message.content);
  }
  return shown;
}

TEST(ParseChatLine, ALineIsAMessageUnlessItBeginsWithASlash) {
  EXPECT_EQ(ParseChatLine("what is 1/2?").command, ChatCommand::kMessage);
  EXPECT_EQ(ParseChatLine("what is 1/2?").text, "what is 1/2?");
  EXPECT_EQ(ParseChatLine("//etc holds what?").command, ChatCommand::kMessage);
  EXPECT_EQ(ParseChatLine("//etc holds what?").text, "/etc holds what?");
  EXPECT_EQ(ParseChatLine("/undo").command, ChatCommand::kUndo);
  EXPECT_EQ(ParseChatLine("/save  a b.jsonl ").command, ChatCommand::kSave);
  EXPECT_EQ(ParseChatLine("/save  a b.jsonl ").text, "a b.jsonl");
  EXPECT_EQ(ParseChatLine("/settings").command, ChatCommand::kSettings);
  EXPECT_EQ(ParseChatLine("/system\nof two\nlines").text, "of two\nlines");
  EXPECT_EQ(ParseChatLine("/resetnow").command, ChatCommand::kUnknown);
  EXPECT_EQ(ParseChatLine("/etc is what?").text, "/etc");
}

TEST(ChatHelp, NamesEveryCommand) {
  EXPECT_EQ(ChatCommandNames().size(), 7);
  for (const std::string& name : ChatCommandNames()) {
    EXPECT_THAT(ChatHelp(), HasSubstr(name));
    EXPECT_NE(ParseChatLine(name).command, ChatCommand::kUnknown);
  }
}

TEST(Conversation, UndoForgetsAQuestionWithItsAnswerAndNeverTheSystemMessage) {
  Conversation conversation("Be brief.");
  EXPECT_FALSE(conversation.Undo());
  conversation.Ask("a");
  conversation.Answer("b");
  conversation.Ask("c");
  conversation.TakeBack();
  conversation.Ask("d");
  conversation.Answer("e");
  EXPECT_THAT(Shown(conversation), ElementsAre("system: Be brief.", "user: a", "assistant: b",
                                               "user: d", "assistant: e"));
  EXPECT_TRUE(conversation.Undo());
  EXPECT_THAT(Shown(conversation), ElementsAre("system: Be brief.", "user: a", "assistant: b"));
  EXPECT_TRUE(conversation.Undo());
  EXPECT_FALSE(conversation.Undo());
  EXPECT_THAT(Shown(conversation), ElementsAre("system: Be brief."));
}

TEST(Conversation, TheSystemMessageIsReplacedRemovedAndKeptByAReset) {
  Conversation conversation("");
  conversation.Ask("a");
  conversation.Answer("b");
  conversation.SetSystem("One.");
  EXPECT_THAT(Shown(conversation), ElementsAre("system: One.", "user: a", "assistant: b"));
  conversation.SetSystem("Two.");
  EXPECT_THAT(Shown(conversation), ElementsAre("system: Two.", "user: a", "assistant: b"));
  conversation.Reset();
  EXPECT_THAT(Shown(conversation), ElementsAre("system: Two."));
  conversation.SetSystem("");
  EXPECT_THAT(Shown(conversation), ElementsAre());
}

TEST(Conversation, TheFirstQuestionHasTheChunks) {
  const std::vector<PromptPart> chunks = {"A", "B"};
  Conversation conversation("Be brief.", chunks);
  conversation.Ask("a");
  conversation.TakeBack();
  conversation.Ask("b");
  conversation.Answer("c");
  conversation.Ask("d");
  ASSERT_EQ(conversation.messages().size(), 4u);
  EXPECT_EQ(conversation.messages()[1].chunks, chunks);
  EXPECT_TRUE(conversation.messages()[3].chunks.empty());
  conversation.Reset();
  conversation.Ask("e");
  EXPECT_EQ(conversation.messages()[1].chunks, chunks);
  conversation.SetSystem("");
  EXPECT_EQ(conversation.messages()[0].chunks, chunks);

  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "conversation_with_chunks.jsonl";
  std::filesystem::remove(path);
  ASSERT_TRUE(conversation.Save(path.string()).ok());
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const absl::StatusOr<Job> job = ParseJob(line, 1, Job());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->messages->at(0).chunks, chunks);
}

TEST(Conversation, IsSavedAsAJobAndNeverOverAFileThatIsThere) {
  const std::string path = ::testing::TempDir() + "baton_conversation_test.jsonl";
  std::filesystem::remove(path);
  Conversation conversation("Be brief.");
  conversation.Ask("two\nlines and \xff");
  conversation.Answer("b");
  ASSERT_TRUE(conversation.Save(path).ok());
  std::string line;
  std::getline(std::ifstream(path), line);
  const absl::StatusOr<Job> job = ParseJob(line, 1);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->messages->size(), 3);
  EXPECT_EQ((*job->messages)[1].content, "two\nlines and \uFFFD");
  EXPECT_EQ(conversation.Save(path).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(conversation.Save("/nowhere/at/all").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(conversation.Save("/dev/full").code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace baton
