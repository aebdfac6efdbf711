#include "router/tenant_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string TableError(std::string_view text) {
  const absl::Status status = TenantTable::Parse(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(TenantTable, WithoutAFileNobodyHasALimit) {
  const TenantTable table;
  EXPECT_EQ(table.LimitsOf("anyone"), TenantLimits());
  EXPECT_EQ(table.LimitsOf("").max_priority, std::numeric_limits<int32_t>::max());
  EXPECT_FALSE(table.IsListed("anyone"));
}

TEST(TenantTable, ReadsALineForEachTenantAndOneForAllOthers) {
  const auto table = TenantTable::Parse(
      "# limits\n"
      "{\"tenant\": \"acme\", \"requests_per_minute\": 600, \"tokens_per_minute\": 100000, "
      "\"concurrent_requests\": 16, \"weight\": 2.5, \"max_priority\": 3, \"kv_share\": 0.25}\r\n"
      "\n"
      "{\"tenant\": \"*\", \"concurrent_requests\": 4}\n"
      "{\"tenant\": \"\", \"max_priority\": -100}");
  ASSERT_TRUE(table.ok()) << table.status();
  const TenantLimits acme = {.requests_per_minute = 600,
                             .tokens_per_minute = 100'000,
                             .concurrent_requests = 16,
                             .weight = 2.5,
                             .max_priority = 3,
                             .kv_share = 0.25};
  EXPECT_EQ(table->LimitsOf("acme"), acme);
  EXPECT_TRUE(table->IsListed("acme"));
  EXPECT_FALSE(table->IsListed("*"));
  const TenantLimits others = {.concurrent_requests = 4};
  EXPECT_EQ(table->LimitsOf("another"), others);
  EXPECT_EQ(table->LimitsOf("").max_priority, -100);
  EXPECT_EQ(table->LimitsOf("").concurrent_requests, 0);
}

TEST(TenantTable, AnErrorNamesLineFieldAndRange) {
  EXPECT_THAT(TableError("{\"tenant\": \"a\"}\n{\"tenant\": \"b\", \"requests_per_minute\": 0}"),
              AllOf(HasSubstr("line 2"), HasSubstr("requests_per_minute"), HasSubstr("[1, ")));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"concurrent_requests\": 3000000000}"),
              HasSubstr("is 3000000000; [1, "));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"weight\": 0}"), HasSubstr("weight"));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"weight\": \"1\"}"), HasSubstr("weight"));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"max_priority\": 101}"), HasSubstr("100"));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"concurrent_requests\": 1.5}"),
              HasSubstr("concurrent_requests"));
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"requests_per_minut\": 1}"),
              HasSubstr("requests_per_minut"));
  EXPECT_THAT(TableError("{\"requests_per_minute\": 1}"), HasSubstr("tenant"));
  EXPECT_THAT(TableError("[]"), HasSubstr("object"));
  EXPECT_THAT(TableError("{\"tenant\": 1}"), HasSubstr("tenant"));
  EXPECT_THAT(TableError("{\"tenant\": \"" + std::string(257, 'x') + "\"}"), HasSubstr("256"));
  EXPECT_THAT(TableError("{"), HasSubstr("line 1"));
  EXPECT_THAT(TableError("{\"tenant\": \"a\"}\n{\"tenant\": \"a\"}"),
              AllOf(HasSubstr("line 2"), HasSubstr("earlier")));
  for (const char* share : {"-0.1", "1.5", "\"half\"", "null"}) {
    EXPECT_THAT(TableError(absl::StrCat("{\"tenant\": \"a\", \"kv_share\": ", share, "}")),
                HasSubstr("kv_share"));
  }
  EXPECT_THAT(TableError("{\"tenant\": \"a\", \"kv_share\": 2}"), HasSubstr("[0, 1]"));
  EXPECT_THAT(TableError("{\"tenant\": \"*\", \"kv_share\": 0.5}"),
              AllOf(HasSubstr("kv_share"), HasSubstr("line of its own")));
  EXPECT_TRUE(TenantTable::Parse("{\"tenant\": \"*\", \"kv_share\": 0}").ok());
  EXPECT_THAT(TableError("{\"tenant\": \"*\"}\n{\"tenant\": \"*\"}"), HasSubstr("earlier"));
}

}  // namespace
}  // namespace baton
