#include "model/architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/architecture.h"
#include "tests/model/model_files.h"
#include "tests/model/toy_architecture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class ArchitecturesTest : public ::testing::Test {
 protected:
  absl::StatusOr<const Architecture*> Find(const std::string& name, ArchitectureList known) {
    GgufBuilder builder = CopyModel(*file_, {"general.architecture"});
    bytes_ = builder.String("general.architecture", name).Build();
    return FindArchitecture(**ParseGguf(bytes_), known);
  }
  std::unique_ptr<GgufFile> file_ = *GgufFile::Open(TinyModelPath("f32"));
  std::string bytes_;
  const ToyArchitecture toy_;
};

TEST_F(ArchitecturesTest, ArchitectureNamesAreUnique) {
  std::set<std::string_view> names;
  for (const Architecture* architecture : Architectures()) {
    ASSERT_NE(architecture, nullptr);
    EXPECT_FALSE(architecture->name().empty());
    EXPECT_TRUE(names.insert(architecture->name()).second) << architecture->name();
  }
  EXPECT_TRUE(names.contains("llama"));
}

TEST_F(ArchitecturesTest, TheFileNamesItsArchitecture) {
  EXPECT_EQ((*FindArchitecture(*file_))->name(), "llama");
  const Architecture* const known[] = {Architectures().front(), &toy_};
  EXPECT_EQ(*Find("toy", known), &toy_);
  EXPECT_EQ(*Find("llama", known), Architectures().front());
}

TEST_F(ArchitecturesTest, AnUnknownArchitectureIsRefusedWithTheListOfKnownOnes) {
  const Architecture* const known[] = {Architectures().front(), &toy_};
  const absl::Status status = Find("gpt-j", known).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "general.architecture is \"gpt-j\", supported: \"llama\", \"toy\"");
  EXPECT_EQ(Find("toy", Architectures()).status().message(),
            "general.architecture is \"toy\", supported: \"llama\"");
  EXPECT_EQ(Find("", known).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ArchitecturesTest, AFileWithoutAnArchitectureIsRefused) {
  bytes_ = CopyModel(*file_, {"general.architecture"}).Build();
  const absl::Status status = FindArchitecture(**ParseGguf(bytes_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("general.architecture"));
}

}  // namespace
}  // namespace baton
