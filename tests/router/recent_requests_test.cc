#include "router/recent_requests.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(RecentRequests, KeepTheNewestAndForgetTheOldest) {
  RecentRequests recent;
  EXPECT_TRUE(recent.All().empty());
  for (int i = 0; i < 100; ++i) {
    RecentRequest request;
    request.id = std::to_string(i);
    recent.Add(std::move(request));
  }
  const std::vector<RecentRequest> all = recent.All();
  ASSERT_EQ(all.size(), RecentRequests::kMost);
  EXPECT_EQ(all.front().id, "99");
  EXPECT_EQ(all.back().id, std::to_string(100 - RecentRequests::kMost));
}

TEST(RecentRequests, KeepTheBeginningOfALongPrompt) {
  std::vector<Hash128> hashes(1000);
  for (size_t i = 0; i < hashes.size(); ++i) hashes[i].low = i;
  const std::vector<Hash128> kept = RecentRequests::Kept(hashes);
  ASSERT_EQ(kept.size(), RecentRequest::kMostHashes);
  EXPECT_EQ(kept.back().low, RecentRequest::kMostHashes - 1);
  EXPECT_EQ(RecentRequests::Kept(std::span(hashes).first(3)).size(), 3u);
}

}  // namespace
}  // namespace baton
