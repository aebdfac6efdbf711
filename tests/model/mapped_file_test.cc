#include "model/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace baton {
namespace {

TEST(MappedFile, ShowsTheFilesBytesAlsoWhenItsNameIsGone) {
  const std::string path = ::testing::TempDir() + "/mapped_file_test";
  std::ofstream(path) << "some bytes";
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::remove(path.c_str());
  ASSERT_EQ((*file)->bytes().size(), 10u);
  EXPECT_EQ((*file)->bytes()[5], std::byte{'b'});
}

TEST(MappedFile, SaysWhyAFileCannotBeMapped) {
  const std::string path = ::testing::TempDir() + "/mapped_file_test";
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(path + ".absent").status()));
  EXPECT_EQ(MappedFile::Open("/").status().message(), "/ is not a regular file");
  EXPECT_EQ(MappedFile::Open("/dev/null").status().message(), "/dev/null is not a regular file");
  std::ofstream(path).flush();
  EXPECT_EQ(MappedFile::Open(path).status(), absl::InvalidArgumentError(path + " is empty"));
  std::remove(path.c_str());
}

TEST(MappedFile, DoesNotWaitForTheWriterOfAPipe) {
  const std::string path = ::testing::TempDir() + "/mapped_file_test_pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(MappedFile::Open(path).status()));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace baton
