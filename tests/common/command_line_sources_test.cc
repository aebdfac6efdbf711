// Options that come from environment variables and configuration files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "common/command_line.h"
#include "common/settings.h"
#include "tests/common/command_line_runs.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A program with two commands. "serve" has settings and two options; one of them reads the
// environment.
class Sources : public ::testing::Test {
 protected:
  Sources() {
    settings_.Add("blocks", &blocks_, 1, 128, "How many.");
    settings_.Add("cache", &cache_, "Whether to keep.");
    serve_.AddSettings(settings_, "Pool");
    serve_.Add("--router", &router_, "").FromEnvironment();
    serve_.Add("--once", &once_, "");
    line_.AddCommand("status", "Shows");
  }
  ~Sources() override {
    for (const char* name : {"BATON_BLOCKS", "BATON_CACHE", "BATON_ROUTER", "BATON_ONCE"})
      unsetenv(name);
  }

  int32_t blocks_ = 16;
  bool cache_ = true;
  std::string router_ = "none";
  std::string once_ = "none";
  SettingList settings_;
  CommandLine line_{"A test."};
  CommandLine& serve_ = line_.AddCommand("serve", "Serves");
};

TEST_F(Sources, SettingsAndMarkedOptionsAreReadFromVariables) {
  setenv("BATON_BLOCKS", "32", 1);
  setenv("BATON_CACHE", "false", 1);
  setenv("BATON_ROUTER", "a:1", 1);
  setenv("BATON_ONCE", "given", 1);
  EXPECT_EQ(Parse(line_, {"serve"}), std::nullopt);
  EXPECT_EQ(blocks_, 32);
  EXPECT_FALSE(cache_);
  EXPECT_EQ(router_, "a:1");
  EXPECT_EQ(once_, "none");  // unmarked options are read from the command line only
}

TEST_F(Sources, TheCommandLineOverridesTheVariable) {
  setenv("BATON_BLOCKS", "32", 1);
  EXPECT_EQ(Parse(line_, {"serve", "--blocks=64"}), std::nullopt);
  EXPECT_EQ(blocks_, 64);
}

TEST_F(Sources, AWrongVariableIsAnErrorOnlyForTheCommandsThatReadIt) {
  setenv("BATON_BLOCKS", "129", 1);
  EXPECT_THAT(
      Refusal(line_, {"serve"}),
      HasSubstr("--blocks: is 129; must be 1 to 128 (from the environment variable BATON_BLOCKS)"));
  EXPECT_EQ(Parse(line_, {"status"}), std::nullopt);
}

TEST_F(Sources, AWrongValueOfAFileNamesTheFile) {
  const std::string path = ::testing::TempDir() + "baton_command_line_value_test.toml";
  std::ofstream(path) << "[serve]\nblocks = 129\n";
  EXPECT_THAT(Refusal(line_, {"--config", path, "serve"}),
              HasSubstr("--blocks: is 129; must be 1 to 128 (from the file " + path + ")"));
  EXPECT_THAT(Refusal(line_, {"--config", path, "serve", "--blocks=130"}), Not(HasSubstr(path)));
  EXPECT_THAT(Refusal(line_, {"--config", path + ".none", "serve"}),
              HasSubstr("--config: " + path + ".none cannot be read"));
}

TEST_F(Sources, AWrongValueOfTheCommandLineIsNotBlamedOnTheVariable) {
  setenv("BATON_BLOCKS", "32", 1);
  EXPECT_THAT(Refusal(line_, {"serve", "--blocks=129"}), Not(HasSubstr("BATON_BLOCKS")));
}

TEST_F(Sources, AMistypedVariableIsAWarningOfTheCommandsThatReadSuchOne) {
  setenv("BATON_BLOCSK", "32", 1);
  const auto warning = [&](const char* command) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(line_, {command}), std::nullopt);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning("serve"),
              HasSubstr("BATON_BLOCSK has no effect; did you mean BATON_BLOCKS?"));
  EXPECT_EQ(warning("status"), "");
  unsetenv("BATON_BLOCSK");
  EXPECT_EQ(warning("serve"), "");
}

TEST_F(Sources, AFileGivesOptionsByCommandAndTheCommandLineOverridesIt) {
  const std::string path = ::testing::TempDir() + "baton_command_line_test.toml";
  std::ofstream(path) << "[serve]\nblocks = 64\ncache = false\nonce = \"from the file\"\n";
  setenv("BATON_BLOCKS", "32", 1);
  EXPECT_EQ(Parse(line_, {"serve", "--config", path}), std::nullopt);
  EXPECT_EQ(blocks_, 64);
  EXPECT_FALSE(cache_);
  EXPECT_EQ(once_, "from the file");
  EXPECT_EQ(Parse(line_, {"--config", path, "serve", "--blocks=96"}), std::nullopt);
  EXPECT_EQ(blocks_, 96);
}

TEST_F(Sources, AMissingFileOrAnUnknownNameInAFileIsRefused) {
  EXPECT_THAT(Refusal(line_, {"serve", "--config", "/nowhere"}), HasSubstr("/nowhere"));
  const std::string path = ::testing::TempDir() + "baton_command_line_test_unknown.toml";
  std::ofstream(path) << "[serve]\nblockz = 64\n";
  EXPECT_THAT(Refusal(line_, {"serve", "--config", path}),
              HasSubstr(path + ": [serve]: there is no option --blockz; did you mean --blocks?"));
}

TEST_F(Sources, TheSettingsCanBePrintedInPlaceOfARun) {
  EXPECT_EQ(Help(line_, {"serve", "--blocks=32", "--show-settings"}),
            "blocks = 32  (default 16)\ncache = true\n");
  EXPECT_THAT(Refusal(line_, {"serve", "--blocks=129", "--show-settings"}), HasSubstr("129"));
}

TEST(CommandLine, ATextCanBeShownWithOrWithoutSettings) {
  int32_t blocks = 16;
  SettingList settings;
  settings.Add("blocks", &blocks, 1, 128, "Blocks.");
  CommandLine line("A test.");
  line.AddSettings(settings, "Engine");
  line.ShowWithSettings([&blocks] { return "twice: " + std::to_string(2 * blocks) + "\n"; });
  EXPECT_EQ(Help(line, {"--blocks=32", "--show-settings"}),
            "blocks = 32  (default 16)\ntwice: 64\n");
  CommandLine other("A test.");
  other.ShowWithSettings([] { return "text\n"; });
  EXPECT_EQ(Help(other, {"--show-settings"}), "text\n");
}

TEST(CommandLine, APrintFlagChecksTheCommandLineAndReplacesTheRun) {
  CommandLine line("A test.");
  bool other = false;
  line.AddFlag("--other", &other, "Other");
  line.AddPrintFlag("--page", "Print the page", [] { return "page\n"; });
  EXPECT_EQ(Help(line, {"--page", "--other"}), "page\n");
  EXPECT_THAT(Refusal(line, {"--page", "--nothing"}), HasSubstr("--nothing"));
  EXPECT_EQ(Parse(line, {"--other"}), std::nullopt);
}

}  // namespace
}  // namespace baton
