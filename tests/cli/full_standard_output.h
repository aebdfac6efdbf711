// Makes standard output behave as on a full disk during its lifetime.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace baton {

class FullStandardOutput {
 public:
  FullStandardOutput() {
    std::fflush(stdout);
    before_ = dup(STDOUT_FILENO);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(dup2(full, STDOUT_FILENO), STDOUT_FILENO);
    close(full);
  }
  ~FullStandardOutput() {
    __fpurge(stdout);
    dup2(before_, STDOUT_FILENO);
    close(before_);
    std::clearerr(stdout);
    std::cout.clear();
  }

 private:
  int before_ = -1;
};

}  // namespace baton
