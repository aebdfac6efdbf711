// The extent of tests that compare random operations with a model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

namespace baton {

// Number of seeds, for code that one thread uses. ThreadSanitizer finds nothing in it and makes it
// more than ten times slower, so it gets a tenth of the seeds.
constexpr int RandomSeeds(int seeds) {
#ifdef __SANITIZE_THREAD__
  return seeds < 10 ? 1 : seeds / 10;
#else
  return seeds;
#endif
}

// Prints the number of operations, so that the output of a run shows the extent of the test.
inline void ReportRandomOperations(int64_t count) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::printf("%lld random operations in %s.%s\n", static_cast<long long>(count),
              test.test_suite_name(), test.name());
}

}  // namespace baton
