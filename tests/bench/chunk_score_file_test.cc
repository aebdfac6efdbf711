// The file of scored questions: what it keeps, and a run that was stopped.
#include "bench/chunk_score_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "common/check.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

ChunkQuestion Question(const std::string& id) {
  return {.id = id,
          .system = "",
          .chunks = {"Ada lives in Rome.", "Bo lives in Oslo."},
          .question = "Where does Ada live? In",
          .answer = " Rome",
          .distractors = {" Oslo"},
          .right_chunks = {0}};
}

class ChunkScoreFileTest : public testing::Test {
 protected:
  ~ChunkScoreFileTest() override { std::filesystem::remove(path_); }

  ChunkScoreFile Opened(const std::string& computed_by = "model r1 f16") const {
    auto file = ChunkScoreFile::Open(path_, computed_by);
    CHECK(file.ok()) << file.status().message();
    return *std::move(file);
  }
  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string Refusal() const {
    const auto file = ChunkScoreFile::Open(path_, "");
    return file.ok() ? "" : std::string(file.status().message());
  }

  const std::string path_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();
  const ChunkScoreFile::Scores scores_ = {
      {"full", {.right = true, .greedy = false, .nll = 1.0 / 3, .divergence = 0}},
      {"alone", {.right = false, .greedy = true, .nll = 7e-9, .divergence = 0.1}},
      {"share15", {.refused = "not with this model"}}};
};

TEST_F(ChunkScoreFileTest, ANewProcessFindsEveryBitOfAScore) {
  {
    ChunkScoreFile file = Opened();
    EXPECT_EQ(file.Find("set", Question("a"), {}), nullptr);
    ASSERT_TRUE(file.Add("set", Question("a"), scores_).ok());
  }
  const ChunkScoreFile file = Opened();
  const auto* const found = file.Find("set", Question("a"), {"full", "alone", "share15"});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, scores_);
}

TEST_F(ChunkScoreFileTest, AScoreBelongsToModelSetAndQuestion) {
  ASSERT_TRUE(Opened().Add("set", Question("a"), scores_).ok());
  EXPECT_EQ(Opened("other r1 f16").Find("set", Question("a"), {}), nullptr);
  const ChunkScoreFile file = Opened();
  EXPECT_EQ(file.Find("other", Question("a"), {}), nullptr);
  EXPECT_EQ(file.Find("set", Question("b"), {}), nullptr);
  ChunkQuestion reworded = Question("a");
  reworded.chunks[1] = "Bo lives in Bonn.";
  EXPECT_EQ(file.Find("set", reworded, {}), nullptr);
}

TEST_F(ChunkScoreFileTest, AQuestionWithoutAModeIsAskedAgain) {
  ASSERT_TRUE(Opened().Add("set", Question("a"), scores_).ok());
  EXPECT_EQ(Opened().Find("set", Question("a"), {"full", "a_new_mode"}), nullptr);
}

TEST_F(ChunkScoreFileTest, AnotherFileIsNotTouched) {
  for (const std::string text : {"a key without a line end", "{\"id\": \"a question\"}", "[1]\n"}) {
    Write(text);
    EXPECT_THAT(Refusal(), HasSubstr(path_ + ": line 1: "));
    EXPECT_EQ(Text(), text);
  }
}

TEST_F(ChunkScoreFileTest, AWholeLineMayLackItsEnd) {
  ASSERT_TRUE(Opened().Add("set", Question("a"), scores_).ok());
  std::string text = Text();
  text.pop_back();
  Write(text);
  ASSERT_TRUE(Opened().Add("set", Question("b"), scores_).ok());
  for (const char* id : {"a", "b"}) EXPECT_NE(Opened().Find("set", Question(id), {}), nullptr);
}

TEST_F(ChunkScoreFileTest, AScoreThatIsNoNumberIsRefused) {
  ChunkScoreFile file = Opened();
  for (const double wrong : {std::nan(""), static_cast<double>(INFINITY)}) {
    EXPECT_FALSE(file.Add("set", Question("a"), {{"full", {.divergence = wrong}}}).ok());
    EXPECT_FALSE(file.Add("set", Question("a"), {{"full", {.nll = wrong}}}).ok());
  }
  EXPECT_EQ(Text(), "");
}

TEST_F(ChunkScoreFileTest, ALineThatIsOnlyABeginningIsCutOff) {
  ASSERT_TRUE(Opened().Add("set", Question("a"), scores_).ok());
  const std::string whole = Text();
  for (const std::string& tail : {whole.substr(0, whole.size() / 2), std::string("{")}) {
    Write(whole + tail);
    ChunkScoreFile file = Opened();
    EXPECT_EQ(Text(), whole);
    EXPECT_NE(file.Find("set", Question("a"), {}), nullptr);
  }
  ASSERT_TRUE(Opened().Add("set", Question("b"), scores_).ok());
  EXPECT_NE(Opened().Find("set", Question("b"), {}), nullptr);
}

TEST_F(ChunkScoreFileTest, AnErrorNamesFileAndLine) {
  ASSERT_TRUE(Opened().Add("set", Question("a"), scores_).ok());
  const std::string whole = Text();
  for (const std::string& line :
       {std::string("no JSON"), std::string("[]"), std::string("{}"),
        std::string(R"({"computed_by": "", "set": "s", "question": {}, "modes": {}})"),
        std::string(R"({"computed_by": "", "set": "s", "question": {}, "modes": {"full": 1}})")}) {
    Write(whole + line + "\n");
    EXPECT_THAT(Refusal(), HasSubstr(path_ + ": line 2: ")) << line;
  }
  const auto folder = ChunkScoreFile::Open(testing::TempDir(), "");
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace baton
