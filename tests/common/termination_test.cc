#include "common/termination.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace baton {
namespace {

// Runs `body` in a child process, because the signals would reach the test itself. Returns the wait
// status.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Termination, ReturnsTheReceivedSignal) {
  const int status = InChild([] {
    Termination termination;
    kill(getpid(), SIGTERM);
    return termination.Wait() == SIGTERM ? 0 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Termination, TheSecondSignalKills) {
  const int status = InChild([] {
    signal(SIGINT, SIG_DFL);  // background jobs of a shell ignore SIGINT
    Termination termination;
    kill(getpid(), SIGINT);
    termination.Wait();
    kill(getpid(), SIGINT);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Termination, TimesOutAndCanBeRequested) {
  const int status = InChild([] {
    Termination termination;
    if (termination.Wait(1) != -1) return 1;
    std::thread other([&] { termination.Request(); });
    const int result = termination.Wait();
    other.join();
    return result == 0 ? 0 : 2;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace baton
