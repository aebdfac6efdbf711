#include "security/tls_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/security/tls_pair.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const TlsContext> Load(const TlsFiles& files, const TlsRules& rules) {
  auto context = TlsContext::Load(files, rules);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

std::vector<std::string> UrisOf(const TlsContext& context) {
  return UriNames(SSL_CTX_get0_certificate(context.native()));
}

TEST(TlsContext, HasTheRoleOfItsCertificate) {
  const TrialSet set("acme");
  EXPECT_THAT(UrisOf(*Load(set.Files("router"), {})), ElementsAre("baton://router"));
  EXPECT_THAT(UrisOf(*Load(set.Files("client"), {})), ElementsAre("baton://client/acme"));
}

TEST(TlsContext, AcceptsPeersOfItsAuthority) {
  const TrialSet set;
  const auto server = Load(set.Files("worker"), {.side = TlsSide::kServer});
  const auto client = Load(set.Files("router"), {.side = TlsSide::kClient});
  EXPECT_TRUE(TlsPair(*server, *client).ShakeHands());
}

TEST(TlsContext, RefusesPeersOfAnotherAuthorityAndPeersWithoutCertificate) {
  const TrialSet set;
  const TrialSet other;
  const auto server = Load(set.Files("worker"), {.side = TlsSide::kServer});
  TlsFiles stranger = other.Files("worker");
  stranger.authorities = set.Path("ca.crt");  // it trusts the server
  EXPECT_FALSE(TlsPair(*server, *Load(stranger, {.side = TlsSide::kClient})).ShakeHands());
  EXPECT_FALSE(TlsPair(*server, *Load(set.Files(""), {.side = TlsSide::kClient})).ShakeHands());
  const auto deceived = Load(other.Files(""), {.side = TlsSide::kClient});
  const auto open = Load(set.Files("worker"), {.side = TlsSide::kServer, .verify_peer = false});
  EXPECT_FALSE(TlsPair(*open, *deceived).ShakeHands());
}

TEST(TlsContext, RefusesPeersWithAnotherRole) {
  const TrialSet set;
  const TlsRules workers = {
      .side = TlsSide::kServer, .verify_peer = true, .role = CallerRole::kWorker};
  const auto server = Load(set.Files("worker"), workers);
  for (const char* role : {"router", "operator", "client"}) {
    EXPECT_FALSE(TlsPair(*server, *Load(set.Files(role), {.side = TlsSide::kClient})).ShakeHands())
        << role;
  }
  EXPECT_TRUE(
      TlsPair(*server, *Load(set.Files("worker"), {.side = TlsSide::kClient})).ShakeHands());
  const TlsRules of_client = {
      .side = TlsSide::kClient, .verify_peer = true, .role = CallerRole::kWorker};
  const auto impostor = Load(set.Files("router"), {.side = TlsSide::kServer});
  EXPECT_FALSE(TlsPair(*impostor, *Load(set.Files("worker"), of_client)).ShakeHands());
}

TEST(TlsContext, SpeaksOnlyTls13) {
  const TrialSet set;
  const auto server = Load(set.Files("worker"), {.side = TlsSide::kServer});
  const auto client = Load(set.Files("worker"), {.side = TlsSide::kClient});
  SSL_CTX_set_min_proto_version(client->native(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(client->native(), TLS1_2_VERSION);
  EXPECT_FALSE(TlsPair(*server, *client).ShakeHands());
}

// The file holds a certificate and its key. OpenSSL opens it once for each.
TEST(TlsContext, LoadsAFileThatIsBeingReplaced) {
  const TrialSet set;
  const auto replace = [&set](const char* role) {
    std::filesystem::copy_file(set.Path(std::string(role) + ".pem"), set.Path("new"));
    std::filesystem::rename(set.Path("new"), set.Path("worker.pem"));
  };
  std::atomic<bool> replaced = false;
  std::thread replacer([&] {
    for (int i = 0; i < 50; ++i) {
      replace(i % 2 == 0 ? "router" : "client");
      // Long beside a load, also with a sanitizer.
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    replaced = true;
  });
  int failed = 0;
  while (!replaced) failed += TlsContext::Load(set.Files("worker"), {}).ok() ? 0 : 1;
  replacer.join();
  EXPECT_EQ(failed, 0);
}

class TlsContextSourceTest : public ::testing::Test {
 protected:
  // Waits until the source has looked at the files again, and returns its context.
  std::shared_ptr<const TlsContext> LookAgain() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    return source_->Newest();
  }

  const TrialSet set_;
  std::unique_ptr<TlsContextSource> source_ =
      *TlsContextSource::Open(set_.Files("worker"), {.side = TlsSide::kServer});
};

TEST_F(TlsContextSourceTest, UsesFilesThatWereReplaced) {
  const auto before = source_->Newest();
  EXPECT_EQ(LookAgain(), before);
  set_.Renew();
  const auto after = LookAgain();
  EXPECT_NE(after, before);
  EXPECT_TRUE(
      TlsPair(*after, *Load(set_.Files("worker"), {.side = TlsSide::kClient})).ShakeHands());
}

TEST_F(TlsContextSourceTest, KeepsTheContextWhileTheFilesAreWrong) {
  const auto before = source_->Newest();
  std::ofstream(set_.Path("worker.pem")) << "half a fi";
  EXPECT_EQ(LookAgain(), before);
  set_.Renew();
  EXPECT_NE(LookAgain(), before);
}

}  // namespace
}  // namespace baton
