#include "engine/live_choices.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

void AddRequest(LiveChoices& choices, RequestHandle first, int32_t n, int64_t deadline_us = 0) {
  auto request = std::make_shared<ChoicesRequest>();
  request->first = first;
  request->n = n;
  request->deadline_us = deadline_us;
  for (int32_t i = n - 1; i >= 0; --i) {
    auto choice = std::make_unique<Choice>();
    choice->request = request;
    choice->index = i;
    choices.Add(std::move(choice));
  }
}

std::vector<RequestHandle> HandlesOf(const LiveChoices& choices, RequestHandle first) {
  std::vector<RequestHandle> handles;
  for (const Choice* choice : choices.Of(first)) handles.push_back(choice->handle());
  return handles;
}

TEST(LiveChoices, ARequestsChoicesAreItsOwnAndInOrder) {
  LiveChoices choices;
  AddRequest(choices, 4, 3);
  AddRequest(choices, 7, 2);
  EXPECT_EQ(HandlesOf(choices, 4), (std::vector<RequestHandle>{4, 5, 6}));
  EXPECT_EQ(HandlesOf(choices, 7), (std::vector<RequestHandle>{7, 8}));
  EXPECT_EQ(HandlesOf(choices, 5), std::vector<RequestHandle>())
      << "5 is not the first handle of a request";
  EXPECT_EQ(choices.Handles(), (std::vector<RequestHandle>{4, 5, 6, 7, 8}));
}

TEST(LiveChoices, TheFirstHandleNamesARequestWhoseFirstChoiceHasEnded) {
  LiveChoices choices;
  AddRequest(choices, 4, 3);
  choices.Remove(4);
  EXPECT_EQ(choices.Find(4), nullptr);
  EXPECT_EQ(HandlesOf(choices, 4), (std::vector<RequestHandle>{5, 6}));
  choices.Remove(5);
  choices.Remove(6);
  EXPECT_TRUE(choices.empty());
}

TEST(LiveChoices, ReturnsExpiredRequestsAndTheNextDeadline) {
  LiveChoices choices;
  EXPECT_EQ(choices.CheckDeadlines(100).next_us, std::nullopt);
  AddRequest(choices, 1, 1);
  AddRequest(choices, 9, 2, /*deadline_us=*/100);
  AddRequest(choices, 5, 1, /*deadline_us=*/90);
  AddRequest(choices, 6, 1, /*deadline_us=*/101);
  AddRequest(choices, 7, 1, /*deadline_us=*/200);
  const LiveChoices::Deadlines deadlines = choices.CheckDeadlines(100);
  EXPECT_EQ(deadlines.late, (std::vector<RequestHandle>{5, 9, 10}));
  EXPECT_EQ(deadlines.next_us, 101);
}

TEST(LiveChoicesDeathTest, AHandleIsUsedOnce) {
  LiveChoices choices;
  AddRequest(choices, 1, 2);
  EXPECT_DEATH(AddRequest(choices, 2, 1), "request handle 2 is used twice");
}

}  // namespace
}  // namespace baton
