// Checks that hold for all commands of `baton`.
#include "cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/jobs.h"
#include "common/command_line.h"
#include "tests/cli/all_commands.h"

namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class Commands : public ::testing::Test {
 protected:
  Commands() { AddAllCommands(line_); }

  int Run(const std::vector<const char*>& arguments) {
    std::vector<const char*> argv = {"baton"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = line_.Run(static_cast<int>(argv.size()), argv.data());
    error_ = ::testing::internal::GetCapturedStderr();
    output_ = ::testing::internal::GetCapturedStdout();
    return code;
  }

  CommandLine line_{"A test."};
  std::string output_;
  std::string error_;
};

TEST_F(Commands, TheHelpNamesEveryNumbersRange) {
  int numbers = 0;
  for (const CommandDescription& command : AllCommands(line_.Describe())) {
    for (const OptionDescription& option : command.options) {
      if (option.value != "INT" && option.value != "UINT" && option.value != "FLOAT") continue;
      ++numbers;
      EXPECT_THAT(option.help, AnyOf(HasSubstr("Range: "), HasSubstr("2^64-1")))
          << option.names.front();
    }
  }
  EXPECT_GE(numbers, 14);
}

TEST_F(Commands, EveryHelpHasOneStyle) {
  for (const CommandDescription& command : AllCommands(line_.Describe())) {
    const std::string path = absl::StrJoin(command.path, " ");
    if (command.path.size() > 1) {
      EXPECT_THAT(command.description, MatchesRegex("[A-Z].*[^.]")) << path;
    }
    for (const OptionDescription& option : command.options) {
      const std::string name = option.names.empty() ? option.positional : option.names.back();
      EXPECT_THAT(option.help, MatchesRegex("[A-Z0-9(\"].*[.]")) << path << " " << name;
      EXPECT_THAT(option.help, Not(HasSubstr(".."))) << path << " " << name;
      if (name.ends_with("-ms")) {
        EXPECT_THAT(option.help, HasSubstr("illiseconds")) << path << " " << name;
      }
      if (name.ends_with("-mib")) {
        EXPECT_THAT(option.help, HasSubstr("MiB")) << path << " " << name;
      }
    }
  }
}

TEST_F(Commands, TheHelpNamesEveryFieldOfAJob) {
  const std::string line =
      R"({"id":1,"prompt":"a","n":1,"priority":0,"max_tokens":9,"max_completion_tokens":9,
          "min_tokens":1,"temperature":0,"top_k":5,"top_p":0.5,"min_p":0.1,"repetition_penalty":1,
          "presence_penalty":0,"frequency_penalty":0,"logit_bias":{},"seed":1,"stop":[],
          "stop_token_ids":[],"ignore_eos":true,"logprobs":true,"top_logprobs":1,"tenant":"t",
          "cache_salt":"s","session_id":"u","messages":null,"prompt_token_ids":null})";
  EXPECT_TRUE(ParseJob(line, 1).ok()) << ParseJob(line, 1).status();
  const nlohmann::json job = nlohmann::json::parse(line);
  std::vector<const char*> commands = {"run"};
#ifdef BATON_GRPC
  commands.push_back("generate");
#endif
  for (const char* command : commands) {
    EXPECT_EQ(Run({command, "--help"}), 0);
    for (const auto& [name, value] : job.items()) {
      EXPECT_THAT(output_, HasSubstr(absl::StrCat("\n  ", name, " "))) << command;
    }
    EXPECT_THAT(output_, HasSubstr("\n  custom_id "));
  }
}

// The parser accepts the examples of the help.
TEST_F(Commands, TheHelpsExamplesAreJobs) {
  EXPECT_EQ(Run({"run", "--help"}), 0);
  int examples = 0;
  for (size_t at = output_.find("Example: "); at != std::string::npos;
       at = output_.find("Example: ", at + 1)) {
    const size_t begin = output_.find('{', at);
    const std::string line = output_.substr(begin, output_.find("\n\n", begin) - begin);
    EXPECT_TRUE(ParseJob(line, 1).ok()) << ParseJob(line, 1).status();
    ++examples;
  }
  EXPECT_EQ(examples, 2);
}

TEST_F(Commands, AFileThatCannotBeReadIsNamedWithTheReason) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"perplexity", "--text", "/"}, {"perplexity", "--tokens", "/"}}) {
    EXPECT_EQ(Run(arguments), 2);
    EXPECT_THAT(error_, HasSubstr("cannot read /: Is a directory"));
  }
}

#ifdef BATON_GRPC
TEST_F(Commands, ANumberOutOfRangeIsRefusedWithTheLimit) {
  EXPECT_EQ(Run({"generate", "--prompt=a", "--timeout-ms", "9223372036854775807"}), 2);
  EXPECT_THAT(error_, HasSubstr("--timeout-ms: is 9223372036854775807; must be 0 to 31536000000"));
  EXPECT_EQ(Run({"resize", "--worker=a:1", "--blocks=99999999999"}), 2);
  EXPECT_THAT(error_, HasSubstr("--blocks: is 99999999999; must be 1 to 1073741824"));
  EXPECT_EQ(Run({"up", "--ready-timeout-ms=9223372036854775807"}), 2);
  EXPECT_THAT(error_, HasSubstr("must be 1 to 31536000000"));
}

TEST_F(Commands, SetRoleNeedsAWorkerAndARole) {
  EXPECT_EQ(Run({"set-role", "--role=both"}), 2);
  EXPECT_THAT(error_, HasSubstr("--worker"));
  EXPECT_EQ(Run({"set-role", "--worker=a:1"}), 2);
  EXPECT_THAT(error_, HasSubstr("--role"));
  EXPECT_EQ(Run({"set-role", "--worker=a:1", "--role=nothing"}), 2);
  EXPECT_THAT(error_, HasSubstr("nothing"));
}

TEST_F(Commands, RouterAndModelAreReadFromVariablesByEveryCommandThatHasThem) {
  setenv("BATON_ROUTER", "nowhere", 1);
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{"status"}, {"chat"}, {"generate", "--prompt=a"}}) {
    EXPECT_EQ(Run(command), 2) << command[0];
    EXPECT_THAT(error_, HasSubstr("nowhere")) << command[0];
  }
  unsetenv("BATON_ROUTER");
  setenv("BATON_MODEL", "/nowhere/it.gguf", 1);
  for (const std::vector<const char*>& command : {std::vector<const char*>{"inspect", "model"},
                                                  {"inspect", "tokens", "--text=a"},
                                                  {"inspect", "blocks", "--prompt=a"},
                                                  {"run", "--prompt=a"},
                                                  {"perplexity", "--text=/dev/null"}}) {
    EXPECT_EQ(Run(command), 2) << command[1];
    EXPECT_THAT(error_, HasSubstr("/nowhere/it.gguf")) << command[1];
  }
  unsetenv("BATON_MODEL");
}

TEST_F(Commands, EveryRouterOfGenerateIsChecked) {
  EXPECT_EQ(Run({"generate", "--router", "a:1", "--router", "nowhere", "--prompt=a"}), 2);
  EXPECT_THAT(error_, HasSubstr("nowhere"));
  EXPECT_EQ(Run({"generate", "--retries=1001", "--prompt=a"}), 2);
  EXPECT_THAT(error_, HasSubstr("--retries: is 1001; must be 0 to 1000"));
}

TEST_F(Commands, ADirectoryIsNoFileOfJobs) {
  EXPECT_EQ(Run({"generate", "--jobs", "/"}), 2);
  EXPECT_THAT(error_, HasSubstr("cannot read /: Is a directory"));
}
#endif

TEST_F(Commands, ShowSettingsIncludesTheSamplingOfConversations) {
  EXPECT_EQ(Run({"run", "--model", "/nowhere/model.gguf", "--top-k", "7", "--show-settings"}), 0);
  EXPECT_THAT(output_, StartsWith("model = /nowhere/model.gguf"));
  EXPECT_THAT(
      output_,
      HasSubstr(
          "\n# the model's own sampling is unknown: --model: cannot open /nowhere/model.gguf"));
  EXPECT_THAT(output_, HasSubstr("\nconversations: temperature 0.4 (default), top-k 7 (flag), "
                                 "top-p 0.9 (default)\n"));
#ifdef BATON_GRPC
  for (const char* command : {"chat", "generate"}) {
    EXPECT_EQ(Run({command, "--temperature", "0.5", "--show-settings"}), 0) << error_;
    EXPECT_EQ(output_,
              "conversations: temperature 0.5 (flag), top-p 0.9 (default); the router's model may "
              "recommend others, except for flags\n");
  }
#endif
}

}  // namespace
}  // namespace baton
