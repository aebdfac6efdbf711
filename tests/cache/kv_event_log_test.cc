#include "cache/index/kv_event_log.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(KvEventLog, BatchesCountFromOne) {
  KvEventLog log(1 << 20);
  EXPECT_EQ(log.last(), 0u);
  EXPECT_EQ(log.Find(0), nullptr);
  EXPECT_EQ(log.Find(1), nullptr);
  log.Append("a");
  log.Append("b");
  EXPECT_EQ(log.last(), 2u);
  EXPECT_EQ(*log.Find(1), "a");
  EXPECT_EQ(*log.Find(2), "b");
  EXPECT_EQ(log.Find(0), nullptr);
  EXPECT_EQ(log.Find(3), nullptr);
}

TEST(KvEventLog, TheOldestGoFirstAndTheLastStays) {
  KvEventLog log(1000);
  for (int i = 0; i < 20; ++i) log.Append(std::string(100, static_cast<char>('a' + i)));
  EXPECT_EQ(log.last(), 20u);
  EXPECT_EQ(log.Find(1), nullptr);
  int kept = 0;
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    const KvEventLog::Batch batch = log.Find(sequence);
    if (batch == nullptr) {
      EXPECT_EQ(kept, 0) << "the stored batches must end with the last one";
      continue;
    }
    ++kept;
    EXPECT_EQ(*batch, std::string(100, static_cast<char>('a' + sequence - 1)));
  }
  EXPECT_GE(kept, 5);
  EXPECT_LE(kept * 100, 1000);
  log.Append(std::string(5000, 'z'));
  EXPECT_EQ(log.Find(20), nullptr);
  EXPECT_EQ(log.Find(21)->size(), 5000u);
}

}  // namespace
}  // namespace baton
