#include "tracing/span_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "metrics/metric_set.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using std::chrono::hours;
using std::chrono::milliseconds;

Span Named(const std::string& name) { return {.context = {}, .name = name}; }
std::vector<std::string> NamesIn(const std::vector<Span>& spans) {
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.name);
  return names;
}

class SpanQueueTest : public ::testing::Test {
 protected:
  int64_t Dropped() { return metrics_.Cells(Metric::kTraceSpansDropped); }

  MetricSet metrics_{MetricPrograms::kRouters};
  SpanQueue queue_{3, &metrics_};
};

TEST_F(SpanQueueTest, GivesSpansOutInTheirOrderAndInBatches) {
  for (const char* name : {"a", "b", "c"}) queue_.Add(Named(name));
  EXPECT_THAT(NamesIn(queue_.Take(2, hours(1))), ElementsAre("a", "b"));
  EXPECT_THAT(NamesIn(queue_.Take(2, milliseconds(1))), ElementsAre("c"));
  EXPECT_THAT(queue_.Take(2, milliseconds(1)), IsEmpty());
}

TEST_F(SpanQueueTest, DropsAndCountsWhatHasNoRoom) {
  for (const char* name : {"a", "b", "c", "d", "e"}) queue_.Add(Named(name));
  EXPECT_EQ(Dropped(), 2);
  EXPECT_THAT(NamesIn(queue_.Take(9, milliseconds(1))), ElementsAre("a", "b", "c"));
  queue_.Add(Named("f"));
  EXPECT_EQ(Dropped(), 2);
}

TEST_F(SpanQueueTest, AFullBatchEndsTheWait) {
  std::thread adder([this] {
    queue_.Add(Named("a"));
    queue_.Add(Named("b"));
  });
  EXPECT_THAT(NamesIn(queue_.Take(2, hours(1))), ElementsAre("a", "b"));
  adder.join();
}

TEST_F(SpanQueueTest, StopEndsWaitsAndRefusesLaterSpans) {
  queue_.Add(Named("a"));
  std::thread stopper([this] { queue_.Stop(); });
  EXPECT_THAT(NamesIn(queue_.Take(2, hours(1))), ElementsAre("a"));
  queue_.Pause(hours(1));
  stopper.join();
  EXPECT_TRUE(queue_.stopped());
  queue_.Add(Named("b"));
  EXPECT_EQ(Dropped(), 1);
  EXPECT_THAT(queue_.Take(2, hours(1)), IsEmpty());
}

}  // namespace
}  // namespace baton
