#include "security/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(TlsFiles, AreOffByDefaultAndReadFromSettings) {
  TlsFiles files;
  EXPECT_FALSE(files.any());
  EXPECT_TRUE(CheckFleetTls(files).ok());
  SettingList settings;
  RegisterSettings(files, settings);
  ASSERT_TRUE(settings.Set("tls-cert", "a").ok());
  EXPECT_TRUE(files.any());
  EXPECT_EQ(files.key_file(), "a");
  ASSERT_TRUE(settings.Set("tls-key", "b").ok());
  EXPECT_EQ(files.key_file(), "b");
}

TEST(TlsFiles, AreWholeForAProcessOfTheFleet) {
  const TrialSet set;
  EXPECT_TRUE(CheckFleetTls(set.Files("worker")).ok());
  EXPECT_THAT(std::string(CheckFleetTls(set.Files("")).message()),
              HasSubstr("--tls-cert is missing"));
  TlsFiles files = set.Files("worker");
  files.authorities.clear();
  EXPECT_THAT(std::string(CheckFleetTls(files).message()), HasSubstr("--tls-ca is missing"));
}

TEST(TlsFiles, AreNamedIfTheyAreWrong) {
  const TrialSet set;
  TlsFiles files = set.Files("worker");
  files.certificate = set.Path("gone.pem");
  EXPECT_EQ(CheckFleetTls(files).code(), absl::StatusCode::kNotFound);
  files = set.Files("worker");
  files.key = set.Path("router.pem");
  const absl::Status mixed = CheckFleetTls(files);
  EXPECT_EQ(mixed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mixed.message()), HasSubstr("TLS: key " + files.key));
  std::ofstream(set.Path("ca.crt")) << "no certificate";
  const absl::Status wrong = CheckFleetTls(set.Files("worker"));
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("TLS: authorities " + set.Path("ca.crt")));
}

}  // namespace
}  // namespace baton
