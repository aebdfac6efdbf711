#include "common/thread_slice.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>

namespace baton {
namespace {

// Runs `body` in a new thread, so that its changes affect only that thread.
template <typename Body>
void InThread(Body body) {
  std::thread(body).join();
}

TEST(ThreadSlice, AShortSliceIsSetWhereTheKernelTakesIt) {
  InThread([] {
    const std::optional<int64_t> usual = SliceNs();
    if (!AskForShortSlice()) {
      EXPECT_EQ(SliceNs(), usual);  // an older kernel, or a sandbox
      return;
    }
    EXPECT_EQ(SliceNs(), kShortSliceNs);
    InThread([] { EXPECT_EQ(SliceNs(), kShortSliceNs); });  // inherited
  });
  EXPECT_NE(SliceNs(), kShortSliceNs);  // the change was the other thread's
}

TEST(ThreadSlice, ThreadsOfAScopeHaveAShortOneAndTheirCreatorItsOwnAgain) {
  const std::optional<int64_t> usual = SliceNs();
  {
    const ShortSliceForNewThreads short_slices;
    const std::optional<int64_t> here = SliceNs();
    InThread([here] { EXPECT_EQ(SliceNs(), here); });
  }
  EXPECT_EQ(SliceNs(), usual);
}

TEST(ThreadSlice, PolicyAndPriorityStay) {
  InThread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 7), 0);  // of this thread
    AskForShortSlice();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 7);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    // SCHED_IDLE runs only when the processor is idle, so it has no slice
    EXPECT_FALSE(AskForShortSlice());
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  });
}

// Runs `body` in a child process where sched_setattr fails with `error`, as on another kernel.
// Returns the wait status.
template <typename Body>
int WhereTheKernelAnswers(int error, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    const auto refuse = static_cast<uint32_t>(SECCOMP_RET_ERRNO | error);
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setattr, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refuse),
    };
    sock_fprog program = {.len = std::size(filter), .filter = filter};
    const bool filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    // Without seccomp filters, the test cannot imitate another kernel.
    _exit(filtered ? body() : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(ThreadSlice, IfTheKernelRefusesNothingChanges) {
  for (const int error : {ENOSYS, EINVAL, EPERM}) {
    const int status = WhereTheKernelAnswers(error, [] {
      const std::optional<int64_t> usual = SliceNs();
      if (AskForShortSlice()) return 1;
      return SliceNs() == usual ? 0 : 2;
    });
    EXPECT_EQ(status, 0) << error;
  }
}

}  // namespace
}  // namespace baton
