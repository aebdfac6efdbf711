#include "common/termination.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace baton {
namespace {

sigset_t TerminationSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

constexpr int kPollMs = 100;  // how soon Wait() notices Request()

}  // namespace

Termination::Termination() {
  const sigset_t set = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int Termination::Wait(int timeout_ms) {
  using SteadyClock = std::chrono::steady_clock;
  const auto end = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  const sigset_t set = TerminationSignals();
  while (true) {
    if (requested_.load()) return 0;
    if (timeout_ms >= 0 && SteadyClock::now() >= end) return -1;
    timespec pause{.tv_sec = 0, .tv_nsec = kPollMs * 1'000'000L};
    const int signal_number = sigtimedwait(&set, nullptr, &pause);
    if (signal_number < 0) continue;  // EAGAIN: check the conditions; EINTR: wait again
    UnblockTerminationSignals();      // the second signal ends the process in this thread
    return signal_number;
  }
}

void Termination::Request() { requested_.store(true); }

void UnblockTerminationSignals() {
  const sigset_t set = TerminationSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace baton
