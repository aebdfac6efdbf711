#include "cli/bench_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/loadtest/report_records.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  return text.str();
}

TEST(BenchFiles, EveryFileHasItsForm) {
  const std::string base = ::testing::TempDir() + "bench_files_test";
  auto files = BenchFiles::Create(base + ".json", base + ".html", base + ".jsonl");
  ASSERT_TRUE(files.ok()) << files.status();
  const LoadResult result = SomeResult(5);
  EXPECT_TRUE(files->Write(result, SummaryOf(result)).ok());
  EXPECT_EQ(nlohmann::json::parse(ContentOf(base + ".json"))["samples"]["ok"].size(), 5u);
  EXPECT_THAT(ContentOf(base + ".html"), HasSubstr("<!doctype html>"));
  std::istringstream lines(ContentOf(base + ".jsonl"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_EQ(nlohmann::json::parse(line)["number"], count);
    ++count;
  }
  EXPECT_EQ(count, 5);
}

TEST(BenchFiles, NoPathIsNoFile) {
  auto files = BenchFiles::Create("", "", "");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->Write(LoadResult(), LoadSummary()).ok());
}

TEST(BenchFiles, AWrongPathIsKnownBeforeTheRun) {
  EXPECT_THAT(std::string(BenchFiles::Create("", "/nowhere/x.html", "").status().message()),
              HasSubstr("cannot write /nowhere/x.html: No such file"));
}

TEST(BenchFiles, LostTextIsAnError) {
  auto file = OutputFile::Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  file->Write("text");
  EXPECT_THAT(std::string(file->Close().message()), HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace baton
