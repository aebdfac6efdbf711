#include "security/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

class ApiKeysTest : public ::testing::Test {
 protected:
  ~ApiKeysTest() override { std::remove(path_.c_str()); }

  void Write(const std::string& text) {
    const std::string temporary = path_ + ".new";
    std::ofstream(temporary) << text;
    ASSERT_EQ(std::rename(temporary.c_str(), path_.c_str()), 0);
  }
  std::string LineOf(const std::string& key, int64_t expires_s = kNeverExpires) {
    ApiKeyEntry entry;
    entry.id = "id of " + key;
    entry.digest = DigestOfKey(key);
    entry.tenant = "tenant of " + key;
    entry.expires_s = expires_s;
    return FormatApiKey(entry);
  }
  void LookLater(ApiKeys& keys) {
    now_s_ += 1;
    keys.Refresh();
  }
  std::unique_ptr<ApiKeys> Open() {
    auto keys = ApiKeys::Open(path_, [this] { return now_s_; });
    EXPECT_TRUE(keys.ok()) << keys.status();
    return *std::move(keys);
  }

  const std::string path_ = ::testing::TempDir() + "api_keys_" + std::to_string(getpid());
  int64_t now_s_ = 1000;
};

TEST_F(ApiKeysTest, FindsAKeyWithItsTenantAndNoOther) {
  Write(LineOf("one") + LineOf("two"));
  const auto keys = Open();
  const std::optional<Caller> two = keys->Find("two");
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->tenant, "tenant of two");
  EXPECT_EQ(two->roles, RoleSet{CallerRole::kClient});
  for (const char* wrong : {"", "three", "two ", "tw", "TWO"}) {
    EXPECT_FALSE(keys->Find(wrong).has_value()) << wrong;
  }
  EXPECT_FALSE(keys->Find(std::string(kMaxApiKeyBytes + 1, 'x')).has_value());
}

TEST_F(ApiKeysTest, TakesTheKeyOfABearerHeader) {
  Write(LineOf("one"));
  const auto keys = Open();
  for (const std::string header : {"Bearer one", "bearer one", "BEARER  one"}) {
    EXPECT_TRUE(keys->FindBearer(&header).has_value()) << header;
  }
  for (const std::string header : {"", "one", "Basic one", "Bearer", "Bearer ", "Bearerone"}) {
    EXPECT_FALSE(keys->FindBearer(&header).has_value()) << header;
  }
  EXPECT_FALSE(keys->FindBearer(nullptr).has_value());
}

TEST_F(ApiKeysTest, ForgetsAKeyAtItsExpiry) {
  Write(LineOf("one", 1010));
  const auto keys = Open();
  EXPECT_TRUE(keys->Find("one").has_value());
  now_s_ = 1010;
  EXPECT_FALSE(keys->Find("one").has_value());
}

TEST_F(ApiKeysTest, ReadsTheFileAgainWhenItChanges) {
  Write(LineOf("one"));
  const auto keys = Open();
  Write(LineOf("two"));
  LookLater(*keys);
  EXPECT_FALSE(keys->Find("one").has_value());
  EXPECT_TRUE(keys->Find("two").has_value());
}

TEST_F(ApiKeysTest, KeepsTheKeysWhileTheFileIsWrongOrGone) {
  Write(LineOf("one"));
  const auto keys = Open();
  Write("{");
  LookLater(*keys);
  EXPECT_TRUE(keys->Find("one").has_value());
  std::remove(path_.c_str());
  LookLater(*keys);
  EXPECT_TRUE(keys->Find("one").has_value());
  Write(LineOf("two"));
  LookLater(*keys);
  EXPECT_FALSE(keys->Find("one").has_value());
}

TEST_F(ApiKeysTest, NamesAFileThatCannotBeUsed) {
  EXPECT_EQ(ApiKeys::Open(path_).status().code(), absl::StatusCode::kNotFound);
  Write("{\n");
  const absl::Status wrong = ApiKeys::Open(path_).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr(path_ + ", line 1: it is not a JSON object"));
}

}  // namespace
}  // namespace baton
