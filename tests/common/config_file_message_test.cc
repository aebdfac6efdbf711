#include "common/config_file_message.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ConfigFileMessage, NamesTheFileAndTheWrongLine) {
  EXPECT_EQ(ConfigFileMessage("a.toml", "INI was not able to parse up.blocks"),
            "--config a.toml: there is no option up.blocks, or it is no line of TOML. Options of a "
            "command are in a section with its name, for example [up]");
}

TEST(ConfigFileMessage, KeepsOtherMessages) {
  EXPECT_EQ(ConfigFileMessage("a.toml", "a.toml was not readable"),
            "--config: a.toml was not readable");
}

}  // namespace
}  // namespace baton
