// How many random operations a test compared with its model: printed, so that a run's output says
// how much "random events" came to.
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
