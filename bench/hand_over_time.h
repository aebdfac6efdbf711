// Measures how long this machine takes to signal from one thread to another. These times are the
// lower limits of a transfer's fixed cost.
#pragma once

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/transfer_worker.h"
#include "common/check.h"

namespace baton {

// Microseconds to wake a sleeping thread: half of a round trip between two sleeping threads.
inline double WakeMicroseconds() {
  std::atomic<int> turn = 0;
  constexpr int kRounds = 500;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      turn.wait(2 * i);
      turn = 2 * i + 2;
      turn.notify_one();
    }
  });
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Instant start = Now();
    turn = 2 * i + 1;
    turn.notify_one();
    turn.wait(2 * i + 1);
    seconds.push_back(Seconds(start));
  }
  other.join();
  return Median(seconds) / 2 * 1e6;
}

// Microseconds of a round trip through a socket between two threads that poll it. They yield the
// processor between polls.
inline double SocketMicroseconds() {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const auto pass = [](int from, int to) {
    char byte;
    while (recv(from, &byte, 1, 0) != 1) sched_yield();
    CHECK_EQ(send(to, &byte, 1, 0), 1);
  };
  constexpr int kRounds = 5000;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) pass(ends[1], ends[1]);
  });
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    const Instant start = Now();
    char byte = 0;
    CHECK_EQ(send(ends[0], &byte, 1, 0), 1);
    while (recv(ends[0], &byte, 1, 0) != 1) sched_yield();
    seconds.push_back(Seconds(start));
  }
  other.join();
  close(ends[0]);
  close(ends[1]);
  return Median(seconds) * 1e6;
}

}  // namespace baton
