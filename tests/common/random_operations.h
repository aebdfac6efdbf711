// The extent of a test: how many random operations it runs, and how much less under
// ThreadSanitizer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

namespace baton {

// ThreadSanitizer finds nothing in code that one thread uses, and makes it more than ten times
// slower. Tests of such code have fewer cases under it.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Number of seeds, for code that one thread uses.
constexpr int RandomSeeds(int seeds) {
  if (!kThreadSanitizer) return seeds;
  return seeds < 10 ? 1 : seeds / 10;
}

// Prints the number of operations, so that the output of a run shows the extent of the test.
inline void ReportRandomOperations(int64_t count) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::printf("%lld random operations in %s.%s\n", static_cast<long long>(count),
              test.test_suite_name(), test.name());
}

}  // namespace baton
