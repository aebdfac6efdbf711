#include "common/config_file_message.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

FileNames Names(const std::string& command) {
  if (command == "up") return {.options = {"--router-address", "--model"}, .commands = {}};
  return {.options = {"--config", "--version"}, .commands = {"up", "run"}};
}

std::string Message(const std::string& what) { return ConfigFileMessage("a.toml", what, Names); }

TEST(ConfigFileMessage, NamesTheWrongOptionAndTheNearestOne) {
  EXPECT_EQ(Message("INI was not able to parse up.router-adress"),
            "--config a.toml: [up]: there is no option --router-adress; did you mean "
            "--router-address?");
  EXPECT_EQ(Message("INI was not able to parse kv-blocks"),
            "--config a.toml: there is no option --kv-blocks; options of a command stand below its "
            "name, for example [run]");
}

TEST(ConfigFileMessage, NamesASectionWithoutItsEnd) {
  EXPECT_EQ(Message("INI was not able to parse [run"),
            "--config a.toml: \"[run\" is neither an option nor a section such as [run]");
}

TEST(ConfigFileMessage, NamesAnUnknownSection) {
  for (const char* const end : {".++", ".--", ".model"}) {
    EXPECT_EQ(Message(std::string("INI was not able to parse upp") + end),
              "--config a.toml: there is no command upp; did you mean up?");
  }
}

TEST(ConfigFileMessage, OfAProgramWithoutCommands) {
  EXPECT_EQ(ConfigFileMessage("a.toml", "INI was not able to parse speed",
                              [](const std::string&) {
                                return FileNames{.options = {"--kv-blocks"}, .commands = {}};
                              }),
            "--config a.toml: there is no option --speed");
}

TEST(ConfigFileMessage, KeepsOtherMessages) {
  EXPECT_EQ(Message("a.toml was not readable (missing?)"), "--config: a.toml cannot be read");
  EXPECT_EQ(Message("something else"), "--config: something else");
}

}  // namespace
}  // namespace baton
