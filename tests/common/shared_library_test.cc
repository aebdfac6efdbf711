#include "common/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SharedLibrary, TheFirstLibraryThatIsFoundIsLoaded) {
  SharedLibrary library({"libabsent-1.so", "libm.so.6", "libabsent-2.so"});
  double (*square_root)(double) = nullptr;
  library.Find("sqrt", square_root);
  ASSERT_TRUE(library.status().ok()) << library.status();
  EXPECT_EQ(square_root(9), 3);
}

TEST(SharedLibrary, TheErrorNamesEveryLibraryThatWasTried) {
  const SharedLibrary library({"libabsent-1.so", "libabsent-2.so"});
  EXPECT_EQ(library.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(library.status().message()),
      AllOf(HasSubstr("no library \"libabsent-1.so\" or \"libabsent-2.so\""),
            HasSubstr("libabsent-1.so: cannot open"), HasSubstr("libabsent-2.so: cannot open")));
  EXPECT_EQ(SharedLibrary({}).status(),
            absl::UnavailableError("no library \"\": no name was given"));
}

TEST(SharedLibrary, TheErrorNamesTheFirstMissingFunction) {
  SharedLibrary library({"libm.so.6"});
  void (*absent)() = nullptr;
  double (*cosine)(double) = nullptr;
  library.Find("absent_function", absent);
  library.Find("cos", cosine);
  EXPECT_EQ(library.status(), absl::UnavailableError("libm.so.6 has no function absent_function"));
  EXPECT_EQ(absent, nullptr);
  EXPECT_EQ(cosine, nullptr) << "a library that lacks a function is not used";
}

}  // namespace
}  // namespace baton
