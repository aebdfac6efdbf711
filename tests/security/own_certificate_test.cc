#include "security/own_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OwnCertificate, IsFineWithItsRoleAndAnAuthorityOfItsOwn) {
  const TrialSet set;
  EXPECT_THAT(OwnCertificateWarnings(set.Files("router"), CallerRole::kRouter), IsEmpty());
  EXPECT_THAT(OwnCertificateWarnings(set.Files("worker"), CallerRole::kWorker), IsEmpty());
  EXPECT_THAT(OwnCertificateWarnings({}, CallerRole::kWorker), IsEmpty());
}

TEST(OwnCertificate, OfAnotherRoleIsNamed) {
  const TrialSet set;
  EXPECT_THAT(OwnCertificateWarnings(set.Files("worker"), CallerRole::kRouter),
              ElementsAre(HasSubstr("has the role worker, not router")));
}

TEST(OwnCertificate, OfAnotherAuthorityIsNamed) {
  const TrialSet set;
  const TrialSet other;
  TlsFiles files = set.Files("router");
  files.authorities = other.Path("ca.crt");
  EXPECT_THAT(OwnCertificateWarnings(files, CallerRole::kRouter),
              ElementsAre(HasSubstr("is not valid under --tls-ca " + other.Path("ca.crt"))));
}

}  // namespace
}  // namespace baton
