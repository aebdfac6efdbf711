#include "model/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
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

TEST(MappedFile, ReleasedBytesCanBeReadAgain) {
  const std::string path = ::testing::TempDir() + "/mapped_file_test";
  std::string content(5 * 4096 + 100, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 4);
  std::ofstream(path) << content;
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto bytes = (*file)->bytes();
  for (const auto& [begin, size] :
       {std::pair<size_t, size_t>(0, content.size()), {10, 3 * 4096}, {4095, 2}}) {
    EXPECT_EQ(std::memcmp(bytes.data(), content.data(), content.size()), 0);
    (*file)->Release(bytes.subspan(begin, size));
  }
  EXPECT_EQ(std::memcmp(bytes.data(), content.data(), content.size()), 0);
  std::remove(path.c_str());
}

TEST(MappedFile, SaysWhyAFileCannotBeMapped) {
  const std::string path = ::testing::TempDir() + "/mapped_file_test";
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(path + ".absent").status()));
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open("/dev/null/file").status()));
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
