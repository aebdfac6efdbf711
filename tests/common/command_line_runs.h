// Runs a command line in a test and returns what it says.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/exit_code.h"

namespace baton {

using Arguments = std::vector<std::string>;

// Returns `program` followed by the arguments, which must outlive the result.
inline std::vector<const char*> Argv(const Arguments& arguments) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return argv;
}

inline std::optional<int> Parse(CommandLine& line, const Arguments& arguments) {
  const std::vector<const char*> argv = Argv(arguments);
  return line.Parse(static_cast<int>(argv.size()), argv.data());
}

inline int RunLine(CommandLine& line, const Arguments& arguments) {
  const std::vector<const char*> argv = Argv(arguments);
  return line.Run(static_cast<int>(argv.size()), argv.data());
}

// Returns the error for a wrong command line. Checks that the exit code is that of a usage error.
inline std::string Refusal(CommandLine& line, const Arguments& arguments) {
  ::testing::internal::CaptureStderr();
  const std::optional<int> ended = Parse(line, arguments);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(ended, kExitUsage) << said;
  return said;
}

inline std::string Help(CommandLine& line, const Arguments& arguments = {"--help"}) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse(line, arguments), kExitSuccess);
  return ::testing::internal::GetCapturedStdout();
}

}  // namespace baton
