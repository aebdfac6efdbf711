// Questions about documents: the lines of a file, and the generated ones.
#include "bench/chunk_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/generated_questions.h"
#include "engine/model_loader.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kLine[] =
    R"({"id": "q", "system": "", "chunks": ["a Rome b", "c"], "question": "Where?", )"
    R"("answer": " Rome", "distractors": [" Oslo"]})";

std::string Changed(const std::string& from, const std::string& to) {
  std::string line = kLine;
  const size_t at = line.find(from);
  CHECK(at != std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

std::string WrittenTo(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ChunkQuestions, ALineHasAllFields) {
  const absl::StatusOr<ChunkQuestion> question = ParseQuestion(kLine);
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->id, "q");
  EXPECT_EQ(question->system, "");
  EXPECT_THAT(question->chunks, ElementsAre("a Rome b", "c"));
  EXPECT_EQ(question->question, "Where?");
  EXPECT_EQ(question->answer, " Rome");
  EXPECT_THAT(question->distractors, ElementsAre(" Oslo"));
  EXPECT_THAT(question->right_chunks, ElementsAre(0)) << "the chunks that contain the answer";
}

TEST(ChunkQuestions, TheRightChunksMayBeGiven) {
  const auto given =
      ParseQuestion(Changed("\"distractors\"", "\"right_chunks\": [1, 0, 1], \"distractors\""));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(given->right_chunks, ElementsAre(0, 1));
}

TEST(ChunkQuestions, EveryBadLineNamesTheField) {
  const auto fault = [](const std::string& line) {
    return std::string(ParseQuestion(line).status().message());
  };
  EXPECT_EQ(fault("{"), "the line is not JSON");
  EXPECT_EQ(fault("[]"), "the line: must be a JSON object");
  EXPECT_EQ(fault(Changed("\"id\": \"q\", ", "")), "id: is missing");
  EXPECT_EQ(fault(Changed("\"q\"", "7")), "id: must be a string");
  EXPECT_EQ(fault(Changed("\"Where?\"", "\"\"")), "question: is empty");
  EXPECT_EQ(fault(Changed("[\"a Rome b\", \"c\"]", "\"a\"")),
            "chunks: must be an array of at least one string");
  EXPECT_EQ(fault(Changed("\"c\"", "\"\"")), "chunks[1]: is empty");
  EXPECT_EQ(fault(Changed("\"c\"", "null")), "chunks[1]: must be a string");
  EXPECT_EQ(fault(Changed("[\" Oslo\"]", "[]")),
            "distractors: must be an array of at least one string");
  EXPECT_EQ(fault(Changed("\" Oslo\"", "\" Rome\"")), "distractors[0]: equals the answer");
  EXPECT_EQ(fault(Changed("\"id\"", "\"extra\": 1, \"id\"")),
            "extra: is not a field of a question");
  EXPECT_EQ(fault(Changed("\"distractors\"", "\"right_chunks\": [2], \"distractors\"")),
            "right_chunks[0]: must be a chunk number below 2");
  std::string many = "\"x\"";
  for (int i = 0; i < 500; ++i) many += ", \"x\"";
  EXPECT_THAT(fault(Changed("\"c\"", many)), HasSubstr("502"));
}

TEST(ChunkQuestions, AFileSkipsBlankLinesAndNamesTheLineOfAFault) {
  const auto read =
      ReadQuestions(WrittenTo("good.jsonl", std::string(kLine) + "\n\n" + kLine + "\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 2u);
  const absl::Status bad =
      ReadQuestions(WrittenTo("bad.jsonl", std::string(kLine) + "\n\n" + Changed("\"q\"", "7")))
          .status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), EndsWith("bad.jsonl, line 3: id: must be a string"));
  EXPECT_THAT(std::string(ReadQuestions(WrittenTo("empty.jsonl", "\n")).status().message()),
              EndsWith("empty.jsonl: has no question"));
  EXPECT_THAT(std::string(ReadQuestions("/nowhere").status().message()),
              EndsWith("cannot be opened"));
}

class GeneratedQuestionsTest : public testing::Test {
 protected:
  std::unique_ptr<GgufFile> file_ =
      *OpenModel(std::string(BATON_TESTDATA) + "/models/tiny-q4_1.gguf");
  std::unique_ptr<const Tokenizer> tokenizer_ = *Tokenizer::Create(*ReadTokenizerSpec(*file_));
};

TEST_F(GeneratedQuestionsTest, EqualSeedsGiveEqualQuestionsAndTheirLinesAreRead) {
  for (const bool two_facts : {false, true}) {
    const QuestionSet set{.two_facts = two_facts, .chunks = 8, .chunk_tokens = 200};
    const auto lines = [&](uint64_t seed) {
      std::vector<std::string> out;
      for (const ChunkQuestion& question : GenerateQuestions(*tokenizer_, set, 20, seed)) {
        out.push_back(QuestionToLine(question));
        const absl::StatusOr<ChunkQuestion> read = ParseQuestion(out.back());
        EXPECT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(QuestionToLine(*read), out.back());
      }
      return out;
    };
    const std::vector<std::string> first = lines(5);
    EXPECT_EQ(std::set(first.begin(), first.end()).size(), 20u);
    EXPECT_EQ(lines(5), first);
    EXPECT_NE(lines(6), first);
  }
}

TEST_F(GeneratedQuestionsTest, TheAnswerNeedsOneOrTwoDocumentsAndTheOtherChoicesStandElsewhere) {
  for (const bool two_facts : {false, true}) {
    const QuestionSet set{.two_facts = two_facts, .chunks = 8, .chunk_tokens = 200};
    for (const ChunkQuestion& question : GenerateQuestions(*tokenizer_, set, 50, 3)) {
      ASSERT_EQ(question.chunks.size(), 8u);
      ASSERT_EQ(question.right_chunks.size(), two_facts ? 2u : 1u);
      ASSERT_EQ(question.distractors.size(), 3u);
      const auto chunks_with = [&](const std::string& text) {
        std::set<size_t> found;
        for (size_t i = 0; i < 8; ++i) {
          if (question.chunks[i].find(text) != std::string::npos) found.insert(i);
        }
        return found;
      };
      const std::set<size_t> holders = chunks_with("is" + question.answer + ".");
      ASSERT_EQ(holders.size(), 1u) << QuestionToLine(question);
      const std::set<size_t> right(question.right_chunks.begin(), question.right_chunks.end());
      EXPECT_TRUE(right.contains(*holders.begin()));
      std::set<std::string> choices = {question.answer};
      for (const std::string& other : question.distractors) {
        EXPECT_EQ(chunks_with("is" + other + ".").size(), 1u);
        choices.insert(other);
      }
      EXPECT_EQ(choices.size(), 4u);
      for (const std::string& chunk : question.chunks) {
        EXPECT_LE(tokenizer_->Encode(chunk).size(), 200u);
      }
    }
  }
}

}  // namespace
}  // namespace baton
