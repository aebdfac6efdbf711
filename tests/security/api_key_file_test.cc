#include "security/api_key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// SHA-256 of "secret".
constexpr char kDigest[] = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

std::string Line(const std::string& more, const std::string& id = "a") {
  return absl::StrCat(R"({"id":")", id, R"(","sha256":")", kDigest, R"(")", more, "}\n");
}

TEST(ApiKeyFile, ReadsEveryField) {
  const auto entries =
      ParseApiKeys("# keys\n\n" + Line(R"(,"tenant":"acme","role":"operator",)"
                                       R"("expires":"2027-01-31T12:00:00+01:00")"));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 1);
  const ApiKeyEntry& entry = entries->front();
  EXPECT_EQ(entry.id, "a");
  EXPECT_EQ(entry.digest, DigestOfKey("secret"));
  EXPECT_EQ(entry.tenant, "acme");
  EXPECT_EQ(entry.role, CallerRole::kOperator);
  EXPECT_EQ(entry.expires_s, 1801393200);
}

TEST(ApiKeyFile, HasDefaults) {
  const auto entries = ParseApiKeys(Line(R"(,"expires":"")"));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->front().tenant, "");
  EXPECT_EQ(entries->front().role, CallerRole::kClient);
  EXPECT_EQ(entries->front().expires_s, kNeverExpires);
}

TEST(ApiKeyFile, NamesTheLineAndTheFault) {
  const struct {
    std::string text;
    const char* fault;
  } cases[] = {
      {"{", "line 1: it is not a JSON object"},
      {"\n[]\n", "line 2: it is not a JSON object"},
      {"\xff\n", "line 1: it is not a JSON object"},
      {R"({"id":"a","sha256":"00"})", "sha256 has 2 characters; must be 64"},
      {R"({"id":"a"})", "sha256 has 0 characters"},
      {R"({"id":"a","sha256":7})", "sha256 must be a string"},
      {Line("", ""), "id has 0 bytes"},
      {Line("", std::string(129, 'i')), "id has 129 bytes, must have 1 to 128"},
      {Line(R"(,"role":"worker")"), "role is \"worker\"; must be client or operator"},
      {Line(R"(,"tenant":")" + std::string(257, 't') + R"(")"), "tenant has 257 bytes"},
      {Line(R"(,"expires":"soon")"), "expires is \"soon\"; must be a time"},
      {Line(R"(,"secret":"x")"), "there is no field \"secret\""},
      {Line("") + Line(""), "line 2: id \"a\" occurs twice"},
      {Line("") + Line("", "b"), "line 2: the key of id \"b\" occurs twice"},
  };
  for (const auto& [text, fault] : cases) {
    const absl::Status status = ParseApiKeys(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault)) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kDigest))) << text;
  }
}

TEST(ApiKeyFile, HasALimitOfKeys) {
  std::string text;
  for (size_t i = 0; i <= kMaxApiKeys; ++i) {
    ApiKeyEntry entry;
    entry.id = absl::StrCat(i);
    entry.digest = DigestOfKey(entry.id);
    text += FormatApiKey(entry);
  }
  EXPECT_THAT(std::string(ParseApiKeys(text).status().message()),
              HasSubstr("line 10001: there are more than 10000 keys"));
}

TEST(ApiKeyFile, ReadsWhatItWrites) {
  ApiKeyEntry entry;
  entry.id = "\"quoted\"";
  entry.digest = DigestOfKey("k");
  entry.tenant = "ä \\";
  entry.expires_s = 1801393200;
  const auto entries = ParseApiKeys(FormatApiKey(entry));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ(entries->front(), entry);
}

TEST(ApiKeyFile, DrawsKeysThatDifferAndFitIntoAHeader) {
  const auto key = DrawApiKey();
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->size(), 46);
  EXPECT_EQ(
      key->find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
      std::string::npos);
  EXPECT_NE(*key, *DrawApiKey());
}

class AppendApiKeyTest : public ::testing::Test {
 protected:
  AppendApiKeyTest() { std::filesystem::remove(path_); }
  ~AppendApiKeyTest() override { std::filesystem::remove(path_); }

  static ApiKeyEntry Entry(const std::string& id, const std::string& key = "") {
    return {.id = id, .digest = DigestOfKey(id + key), .tenant = "acme"};
  }
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "baton_append_", getpid());
};

TEST_F(AppendApiKeyTest, MakesTheFileAndAddsLines) {
  ASSERT_TRUE(AppendApiKey(path_, Entry("a")).ok());
  ASSERT_TRUE(AppendApiKey(path_, Entry("b")).ok());
  EXPECT_EQ(*ReadApiKeyText(path_), FormatApiKey(Entry("a")) + FormatApiKey(Entry("b")));
}

TEST_F(AppendApiKeyTest, ALineWithoutItsBreakStaysALine) {
  Write("# keys");
  ASSERT_TRUE(AppendApiKey(path_, Entry("a")).ok());
  EXPECT_EQ(*ReadApiKeyText(path_), "# keys\n" + FormatApiKey(Entry("a")));
}

TEST_F(AppendApiKeyTest, WritesNothingThatARouterWouldRefuse) {
  ASSERT_TRUE(AppendApiKey(path_, Entry("a")).ok());
  const absl::Status twice = AppendApiKey(path_, Entry("a", "another key"));
  EXPECT_EQ(twice.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("occurs twice"));
  EXPECT_EQ(*ReadApiKeyText(path_), FormatApiKey(Entry("a")));
  Write("nonsense\n");
  EXPECT_EQ(AppendApiKey(path_, Entry("a")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ReadApiKeyText(path_), "nonsense\n");
  EXPECT_EQ(AppendApiKey("/nowhere/keys", Entry("a")).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
