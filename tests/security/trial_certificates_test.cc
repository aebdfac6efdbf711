#include "security/trial_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(TrialCertificates, AreOneFileForEachRoleThatOthersCannotRead) {
  const TrialSet set;
  for (const char* role : {"router", "worker", "operator", "client"}) {
    const std::string path = set.Path(std::string(role) + ".pem");
    EXPECT_THAT(Content(path), HasSubstr("BEGIN PRIVATE KEY")) << role;
    EXPECT_THAT(Content(path), HasSubstr("BEGIN CERTIFICATE")) << role;
    struct stat found = {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 077, 0) << role;
    EXPECT_TRUE(CheckFleetTls(set.Files(role)).ok()) << role;
  }
}

TEST(TrialCertificates, AreNotOverwritten) {
  const TrialSet set;
  const absl::Status again = MakeTrialCertificates({.directory = set.directory()});
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr("certs renew"));
}

TEST(TrialCertificates, AreRenewedWithTheSameAuthority) {
  const TrialSet set;
  const std::string authority = Content(set.Path("ca.crt"));
  const std::string worker = Content(set.Path("worker.pem"));
  set.Renew();
  EXPECT_EQ(Content(set.Path("ca.crt")), authority);
  EXPECT_NE(Content(set.Path("worker.pem")), worker);
  EXPECT_EQ(RenewTrialCertificates({.directory = "/nowhere"}).code(), absl::StatusCode::kNotFound);
}

TEST(TrialCertificates, RefuseNamesThatWouldChangeTheCertificate) {
  const TrialSet set;
  for (const char* name : {"", "a,URI:baton://worker", "a b", "a\n"}) {
    const absl::Status refused =
        RenewTrialCertificates({.directory = set.directory(), .router_names = {name}});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(RenewTrialCertificates({.directory = set.directory(), .tenant = std::string(300, 't')})
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
