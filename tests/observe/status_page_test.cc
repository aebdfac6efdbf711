#include "observe/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, std::string> Files() {
  std::map<std::string, std::string> files;
  for (const PageFile& file : StatusPageFiles()) {
    files[std::string(file.path)] = std::string(file.content);
  }
  return files;
}

TEST(StatusPage, IsEmbeddedAsItIsInTheTree) {
  const std::map<std::string, std::string> files = Files();
  ASSERT_EQ(files.size(), 3u);
  for (const auto& [path, name] : std::map<std::string, std::string>{
           {"/", "status.html"}, {"/status.css", "status.css"}, {"/status.js", "status.js"}}) {
    std::ifstream file(std::string(BATON_TESTDATA) + "/../../observe/page/" + name);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(files.at(path), text.str()) << name;
  }
}

// The policy forbids all of these, so such a page would not work.
TEST(StatusPage, HasNeitherInlineCodeNorInlineStyle) {
  const std::string html = Files().at("/");
  EXPECT_FALSE(std::regex_search(html, std::regex("<script(?![^>]* src=)")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<style|\\sstyle=|\\son[a-z]+=|javascript:")));
  EXPECT_FALSE(std::regex_search(html, std::regex("(src|href)=\"(https?:)?//")));
}

// Text from the fleet can become markup only through these.
TEST(StatusPage, MakesNoMarkupFromStrings) {
  const std::string script = Files().at("/status.js");
  for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                          "DOMParser", "createContextualFragment", "eval(", "Function(", "srcdoc",
                          "setAttribute(\"style\"", ".href"}) {
    EXPECT_THAT(script, Not(HasSubstr(way)));
  }
}

}  // namespace
}  // namespace baton
