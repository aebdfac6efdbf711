#include "cli/connection_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "security/api_key_file.h"
#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(ConnectionFlags, AreOffByDefault) {
  EXPECT_TRUE(CheckConnectionFlags({}).ok());
  EXPECT_EQ(*ReadApiKey({}), "");
}

TEST(ConnectionFlags, FitTogether) {
  const TrialSet set;
  EXPECT_TRUE(CheckConnectionFlags({.tls = set.Files("")}).ok());
  EXPECT_TRUE(CheckConnectionFlags({.tls = set.Files("client")}).ok());
  TlsFiles files = set.Files("client");
  files.authorities.clear();
  EXPECT_THAT(std::string(CheckConnectionFlags({.tls = files}).message()),
              HasSubstr("need --tls-ca"));
  files = set.Files("");
  files.key = set.Path("client.pem");
  EXPECT_THAT(std::string(CheckConnectionFlags({.tls = files}).message()),
              HasSubstr("--tls-key needs --tls-cert"));
  files = set.Files("client");
  files.authorities = set.Path("gone");
  EXPECT_EQ(CheckConnectionFlags({.tls = files}).code(), absl::StatusCode::kNotFound);
}

TEST(ConnectionFlags, TakeTheKeyFromTheFirstLine) {
  const TrialSet set;
  const std::string file = set.Path("key");
  for (const char* text : {"bk-key", "bk-key\n", "  bk-key \r\nmore\n"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(*ReadApiKey({.api_key_file = file}), "bk-key") << text;
  }
  for (const std::string& text : {std::string(), std::string("\nbk-key"), std::string(" \n"),
                                  std::string(kMaxApiKeyBytes + 1, 'k')}) {
    std::ofstream(file) << text;
    const absl::Status refused = ReadApiKey({.api_key_file = file}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("a key has 1 to 512"));
  }
  for (const char* text : {"bk key", "bk\rkey", "bk\tkey", "bk-k\xc3\xa9y", "bk\x7f"}) {
    std::ofstream(file) << text;
    EXPECT_THAT(std::string(ReadApiKey({.api_key_file = file}).status().message()),
                HasSubstr("only visible ASCII characters"));
  }
  EXPECT_FALSE(ReadApiKey({.api_key_file = set.Path("gone")}).ok());
}

}  // namespace
}  // namespace baton
