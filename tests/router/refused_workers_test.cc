#include "router/refused_workers.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

TEST(RefusedWorkers, ARefusalIsNewOncePerReason) {
  ManualClock clock;
  RefusedWorkers refused(&clock);
  EXPECT_TRUE(refused.Put("a", Epoch(1), "h:1", "in use, heard of 9 ms ago"));
  clock.AdvanceUs(1'000'000);
  EXPECT_FALSE(refused.Put("a", Epoch(1), "h:1", "in use, heard of 15 ms ago"));
  EXPECT_TRUE(refused.Put("a", Epoch(1), "h:1", "another model"));
  EXPECT_TRUE(refused.Put("a", Epoch(2), "h:1", "another model"));
  clock.AdvanceUs(2'000'000);
  ASSERT_EQ(refused.Late().size(), 2);
  EXPECT_EQ(refused.Late()[0].worker_id, "a");
  EXPECT_EQ(refused.Late()[0].address, "h:1");
  EXPECT_EQ(refused.Late()[0].reason, "another model");
  EXPECT_EQ(refused.Late()[0].heard_ms, 2000);
}

TEST(RefusedWorkers, AcceptedOrSilentWorkersAreForgotten) {
  ManualClock clock;
  RefusedWorkers refused(&clock);
  refused.Put("a", Epoch(1), "h:1", "no");
  refused.Put("b", Epoch(1), "h:2", "no");
  refused.Remove("a", Epoch(2));
  EXPECT_EQ(refused.Late().size(), 2) << "another incarnation";
  refused.Remove("a", Epoch(1));
  ASSERT_EQ(refused.Late().size(), 1);
  EXPECT_EQ(refused.Late()[0].worker_id, "b");
  clock.AdvanceUs(RefusedWorkers::kLateUs + 1);
  EXPECT_TRUE(refused.Late().empty());
  EXPECT_TRUE(refused.Put("b", Epoch(1), "h:2", "no")) << "the earlier refusal is too long ago";
}

TEST(RefusedWorkers, SizeAndTextLengthsAreBounded) {
  ManualClock clock;
  RefusedWorkers refused(&clock);
  for (int i = 0; i < 1000; ++i) {
    clock.AdvanceUs(1);
    refused.Put(absl::StrCat(i, std::string(1000, 'x')), Epoch(1), std::string(1000, 'y'),
                std::string(5000, 'z'));
  }
  ASSERT_EQ(refused.Late().size(), RefusedWorkers::kMost);
  EXPECT_TRUE(refused.Late().back().worker_id.starts_with("999x"));
  EXPECT_EQ(refused.Late()[0].worker_id.size(), 256);
  EXPECT_EQ(refused.Late()[0].address.size(), 256);
  EXPECT_EQ(refused.Late()[0].reason.size(), 1024);
}

}  // namespace
}  // namespace baton
