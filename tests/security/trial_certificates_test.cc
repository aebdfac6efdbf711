#include "security/trial_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "security/tls_context.h"
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

std::string NamesOf(const TrialSet& set, const std::string& role) {
  const auto context = TlsContext::Load(set.Files(role), {});
  EXPECT_TRUE(context.ok()) << context.status();
  auto* const names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
      SSL_CTX_get0_certificate((*context)->native()), NID_subject_alt_name, nullptr, nullptr));
  BIO* const text = BIO_new(BIO_s_mem());
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    GENERAL_NAME_print(text, sk_GENERAL_NAME_value(names, i));
    BIO_puts(text, "\n");
  }
  GENERAL_NAMES_free(names);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(text, &bytes);
  std::string out(bytes, static_cast<size_t>(count));
  BIO_free(text);
  return out;
}

TEST(TrialCertificates, KeepTheirNamesWhenTheyAreRenewed) {
  const TrialSet set("acme, inc");
  TrialCertificateOptions options = {.directory = set.directory()};
  options.router_names = {"my.host", "10.1.2.3", "fe80::7"};
  ASSERT_TRUE(RenewTrialCertificates(options).ok());
  const std::string router = NamesOf(set, "router");
  const std::string client = NamesOf(set, "client");
  EXPECT_THAT(router, HasSubstr("DNS:my.host\nIP Address:10.1.2.3\n"));
  EXPECT_THAT(client, HasSubstr("acme"));
  ASSERT_TRUE(RenewTrialCertificates({.directory = set.directory()}).ok());
  EXPECT_EQ(NamesOf(set, "router"), router);
  EXPECT_EQ(NamesOf(set, "client"), client);
  options.tenant = "other";
  ASSERT_TRUE(RenewTrialCertificates(options).ok());
  EXPECT_EQ(NamesOf(set, "client"), "URI:baton://client/other\n");
}

TEST(TrialCertificates, WithoutThePresentOneItsNamesMustBeGiven) {
  const TrialSet set;
  std::filesystem::remove(set.Path("router.pem"));
  EXPECT_EQ(RenewTrialCertificates({.directory = set.directory()}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(RenewTrialCertificates(
                  {.directory = set.directory(), .router_names = std::vector<std::string>{"h"}})
                  .ok());
}

TEST(TrialCertificates, RefuseNamesThatWouldChangeTheCertificate) {
  const TrialSet set;
  for (const char* name : {"", "a,URI:baton://worker", "a b", "a\n"}) {
    const absl::Status refused = RenewTrialCertificates(
        {.directory = set.directory(), .router_names = std::vector<std::string>{name}});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(RenewTrialCertificates({.directory = set.directory(), .tenant = std::string(300, 't')})
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
