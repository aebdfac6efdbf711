#include "kernels/cpu/cpu_event.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace baton {
namespace {

TEST(CpuEvent, IsDoneUntilItIsRecordedAndOnceTheRecordHasPassed) {
  CpuEvent event;
  EXPECT_TRUE(event.Done());
  event.Wait();
  const auto pass = event.Begin();
  EXPECT_FALSE(event.Done());
  pass();
  EXPECT_TRUE(event.Done());
  event.Wait();
}

TEST(CpuEvent, OnlyTheLatestRecordCounts) {
  CpuEvent event;
  const auto first = event.Begin();
  const auto second = event.Begin();
  first();
  EXPECT_FALSE(event.Done());
  second();
  EXPECT_TRUE(event.Done());
}

TEST(CpuEvent, WaitSeesEarlierWrites) {
  for (int round = 0; round < 200; ++round) {
    CpuEvent event;
    int written = 0;  // not atomic, because the event must order the accesses
    std::thread stream([&, pass = event.Begin()] {
      written = round + 1;
      pass();
    });
    if (round % 2 == 0) {
      event.Wait();
    } else {
      while (!event.Done()) std::this_thread::yield();
    }
    EXPECT_EQ(written, round + 1);
    stream.join();
  }
}

TEST(CpuEvent, MayBeDestroyedBeforeItsRecordHasPassed) {
  auto event = std::make_unique<CpuEvent>();
  const auto pass = event->Begin();
  event.reset();
  pass();
}

}  // namespace
}  // namespace baton
