// Tests of reader threads that query the index while another thread writes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cache/global_index_events.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

// One answer that a reader got, and the number of events applied before it.
struct Seen {
  uint64_t events;
  size_t query;
  std::vector<HeldPrefix> answer;
};

// Waits until each reader has at least `least` answers. Returns false after a minute without them,
// so that a test of readers that see nothing fails and ends.
bool AwaitAnswers(const std::vector<std::atomic<size_t>>& answers, size_t least) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (const std::atomic<size_t>& count : answers) {
    while (count < least) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      std::this_thread::yield();
    }
  }
  return true;
}

TEST(GlobalIndex, ReadersSeeAConsistentStateWhileTheIndexIsWritten) {
  constexpr uint32_t kSeed = 5;
  constexpr int kEvents = 20'000;
  const IndexLoad load{"", false, 30, 60, 2, kEvents, true};
  std::vector<std::vector<Hash128>> queries(64);
  IndexEvents query_source(load, kSeed + 1);
  for (auto& query : queries) query = query_source.Sequence();

  GlobalIndex index({.max_blocks = 1 << 16, .expected_blocks = 0, .key_seeds = {}});
  std::atomic<bool> done{false};
  constexpr int kEventsBetweenAnswers = 250;
  std::vector<std::vector<Seen>> seen(2);
  std::vector<std::atomic<size_t>> answers(seen.size());
  std::vector<std::thread> readers;
  for (size_t r = 0; r < seen.size(); ++r) {
    readers.emplace_back([&, r] {
      PrefixMatch match;
      uint64_t last = UINT64_MAX;
      for (size_t i = r; !done; ++i) {
        const size_t query = i * 7 % queries.size();
        auto answer = index.MatchWorkers(queries[query], match);
        if (!match.of_one_moment() || match.events() == last) continue;
        last = match.events();
        seen[r].push_back({.events = last, .query = query, .answer = std::move(answer)});
        ++answers[r];
      }
    });
  }
  {
    IndexEvents events(load, kSeed);
    LiteralPrefixModel ignored;
    bool all_read = true;
    for (int i = 0; i < kEvents && all_read; ++i) {
      events.Next(index, ignored);
      // Wait now and then, so that every reader takes answers at many different states.
      if (i % kEventsBetweenAnswers == 0) {
        all_read = AwaitAnswers(answers, 1 + i / kEventsBetweenAnswers);
      }
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();

  // Replay the events and compare each reader's answer with the model's answer at that event.
  GlobalIndex again({.max_blocks = 1 << 16, .expected_blocks = 0, .key_seeds = {}});
  LiteralPrefixModel model;
  IndexEvents events(load, kSeed);
  std::vector<size_t> next(seen.size());
  for (uint64_t i = 0; i <= kEvents; ++i) {
    for (size_t r = 0; r < seen.size(); ++r) {
      for (; next[r] < seen[r].size() && seen[r][next[r]].events == i; ++next[r]) {
        const Seen& one = seen[r][next[r]];
        ASSERT_EQ(one.answer, model.Match(queries[one.query])) << "after event " << i;
      }
    }
    if (i < kEvents) events.Next(again, model);
  }
  for (size_t r = 0; r < seen.size(); ++r) {
    EXPECT_EQ(next[r], seen[r].size());
    EXPECT_GE(seen[r].size(), kEvents / kEventsBetweenAnswers);
  }
}

TEST(GlobalIndex, ReadersContinueWhileTheTableGrowsAndShrinks) {
  GlobalIndex index({.max_blocks = 1 << 16, .expected_blocks = 0, .key_seeds = {}});
  const auto kept = Chain(0, 300);
  index.Stored(kA, kDevice, {}, kept);
  std::atomic<bool> done{false};
  std::vector<std::atomic<size_t>> answers(1);
  std::thread reader([&] {
    PrefixMatch match;
    while (!done) {
      const auto answer = index.MatchWorkers(kept, match);
      EXPECT_THAT(answer, ElementsAre(HeldPrefix{kA, kDevice, 300}));
      ++answers[0];
    }
  });
  std::vector<std::vector<Hash128>> chains;
  for (uint64_t i = 1; i <= 200; ++i) chains.push_back(Chain(i << 32, 40));
  for (size_t round = 0; round < 5; ++round) {
    for (const auto& chain : chains) index.Stored(kB, kDevice, {}, chain);
    EXPECT_TRUE(AwaitAnswers(answers, 1 + round)) << "the reader got no answer in round " << round;
    for (const auto& chain : chains) index.Removed(kB, kDevice, chain);
  }
  done = true;
  reader.join();
  EXPECT_EQ(index.blocks(), 300u);
}

}  // namespace
}  // namespace baton
