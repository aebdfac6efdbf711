#include "http/http_exchange.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {

// Plays the connection's part, as the exchange's friend.
class HttpExchangeTest : public ::testing::Test {
 protected:
  std::shared_ptr<HttpExchange> Make(HttpFraming framing = {}, size_t max_queued_bytes = 1000) {
    return std::make_shared<HttpExchange>(std::move(framing), max_queued_bytes,
                                          [this] { ++wakes_; });
  }
  int wakes_ = 0;
};

namespace {

HttpResponse Text(std::string body) {
  return {.status = 200, .content_type = "", .headers = {}, .body = std::move(body)};
}

TEST_F(HttpExchangeTest, WakesOnceForWhatIsTakenTogether) {
  const auto exchange = Make();
  EXPECT_FALSE(exchange->begun());
  EXPECT_TRUE(exchange->Begin(Text("a")));
  EXPECT_TRUE(exchange->Write("b"));
  exchange->End();
  EXPECT_TRUE(exchange->begun());
  EXPECT_EQ(wakes_, 1);
}

TEST_F(HttpExchangeTest, NothingFollowsAnEnd) {
  const auto exchange = Make();
  exchange->Reply(Text("whole"));
  EXPECT_FALSE(exchange->Begin(Text("")));
  EXPECT_FALSE(exchange->Write("x"));
  exchange->End();
  exchange->Abort();
  EXPECT_EQ(wakes_, 1);
}

TEST_F(HttpExchangeTest, APieceNeedsABeginning) {
  EXPECT_FALSE(Make()->Write("x"));
  EXPECT_EQ(wakes_, 0);
}

TEST_F(HttpExchangeTest, ATooLongQueueBreaksTheAnswerOff) {
  const auto exchange = Make({}, 1000);
  EXPECT_TRUE(exchange->Begin(Text("")));
  EXPECT_TRUE(exchange->Write(std::string(700, 'x')));
  EXPECT_FALSE(exchange->Write(std::string(700, 'x')));
  EXPECT_FALSE(exchange->Write("x"));
}

}  // namespace
}  // namespace baton
