#include "common/watched_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

class WatchedFileTest : public ::testing::Test {
 protected:
  WatchedFileTest() : folder_(::testing::TempDir() + "watched_file_" + std::to_string(getpid())) {
    mkdir(folder_.c_str(), 0700);
    path_ = folder_ + "/file";
  }
  ~WatchedFileTest() override {
    for (const char* name : {"/file", "/other", "/old"}) std::remove((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string folder_, path_;
};

TEST_F(WatchedFileTest, IsReadOnceUntilItChanges) {
  Write(path_, "one");
  WatchedFile file(path_);
  EXPECT_EQ(*file.ReadIfChanged(), "one");
  EXPECT_EQ(*file.ReadIfChanged(), std::nullopt);
  Write(path_, "another");
  EXPECT_EQ(*file.ReadIfChanged(), "another");
  EXPECT_EQ(*file.ReadIfChanged(), std::nullopt);
}

TEST_F(WatchedFileTest, ANewFileOfTheSameNameIsRead) {
  Write(path_, "one");
  WatchedFile file(path_);
  EXPECT_EQ(*file.ReadIfChanged(), "one");
  Write(folder_ + "/other", "two");
  ASSERT_EQ(rename((folder_ + "/other").c_str(), path_.c_str()), 0);
  EXPECT_EQ(*file.ReadIfChanged(), "two");
}

TEST_F(WatchedFileTest, AChangedSymbolicLinkIsFollowed) {
  Write(folder_ + "/old", "one");
  Write(folder_ + "/other", "two");
  ASSERT_EQ(symlink((folder_ + "/old").c_str(), path_.c_str()), 0);
  WatchedFile file(path_);
  EXPECT_EQ(*file.ReadIfChanged(), "one");
  std::remove(path_.c_str());
  ASSERT_EQ(symlink((folder_ + "/other").c_str(), path_.c_str()), 0);
  EXPECT_EQ(*file.ReadIfChanged(), "two");
}

TEST_F(WatchedFileTest, AMissingFileIsOneErrorUntilItIsThereAgain) {
  WatchedFile file(path_);
  const absl::Status status = file.ReadIfChanged().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_EQ(*file.ReadIfChanged(), std::nullopt);
  Write(path_, "one");
  EXPECT_EQ(*file.ReadIfChanged(), "one");
  std::remove(path_.c_str());
  EXPECT_FALSE(file.ReadIfChanged().ok());
  Write(path_, "one");
  EXPECT_EQ(*file.ReadIfChanged(), "one");
}

}  // namespace
}  // namespace baton
