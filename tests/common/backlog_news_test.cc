#include "common/backlog_news.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(BacklogNews, AreChangesOfAQuarterOfAStep) {
  BacklogNews news(512);
  EXPECT_FALSE(news.Changed(0));
  EXPECT_FALSE(news.Changed(127));
  EXPECT_TRUE(news.Changed(128));
  EXPECT_FALSE(news.Changed(128)) << "told already";
  EXPECT_FALSE(news.Changed(1));
  EXPECT_TRUE(news.Changed(0)) << "the prompts were computed";
}

TEST(BacklogNews, SumUpSmallChanges) {
  BacklogNews news(512);
  EXPECT_FALSE(news.Changed(60));
  EXPECT_FALSE(news.Changed(120));
  EXPECT_TRUE(news.Changed(180)) << "180 tokens since routers were told";
  EXPECT_FALSE(news.Changed(300));
  EXPECT_TRUE(news.Changed(308));
}

TEST(BacklogNews, OfTheSmallestStepsAreEveryChange) {
  BacklogNews news(1);
  EXPECT_FALSE(news.Changed(0));
  EXPECT_TRUE(news.Changed(1));
}

}  // namespace
}  // namespace baton
