// Prints the number of random operations that a test compared with its model, so that the output of
// a run shows the extent of the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

namespace baton {

inline void ReportRandomOperations(int64_t count) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::printf("%lld random operations in %s.%s\n", static_cast<long long>(count),
              test.test_suite_name(), test.name());
}

}  // namespace baton
