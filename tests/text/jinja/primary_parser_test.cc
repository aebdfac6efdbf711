#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/jinja/parser.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(JinjaPrimaryParser, ErrorsNameTheCause) {
  const struct {
    std::string expression;
    std::string message;
  } kCases[] = {{"a[]", "the subscript is empty"},
                {"a[1:2:3:4]", "unexpected ':'"},
                {"a[1, 2]", "a tuple as subscript is not supported"},
                {"f(*a)", "'*' before an argument is not supported"},
                {"f(a=1, a=2)", "argument 'a' is given twice"},
                {"f(a=1, 2)", "a positional argument follows a named one"},
                {"[1 2]", "expected ','"},
                {"{'a' 1}", "expected ':'"},
                {"a.", "expected a name"}};
  for (const auto& c : kCases) {
    const absl::Status status = ParseJinja("\n{{ " + c.expression + " }}", {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2: " + c.message)) << c.expression;
  }
}

}  // namespace
}  // namespace baton
