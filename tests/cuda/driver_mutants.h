// Planted faults of host code: each wait, query, record, copy and launch of a scenario does
// nothing, or a copy or launch runs too late, one at a time. Each fault must be caught by the
// oracle that is meant to.
//
// A letter for each call of the driver, in order, says which oracle that is:
//   b  the result is wrong
//   s  a signal: the host or the device touches memory that it may not
//   c  a CHECK of the program
//   e  the program reports an error
//   d  the program does not end
//   =  nothing: no result depends on the call here (the scenario says why)
//   *  any of them but =; which one depends on what memory happens to contain
// A call may be harmless while streams run late, and wrong while one of them runs early. So every
// fault is tried with all streams late, with each stream early, and with a host that comes first
// (tests/gpu_emulator/stream_order.h).
//
// Thread safety: belongs to the main thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/cuda/emulator_faults.h"
#include "tests/cuda/emulator_library.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {

using gpu_emulator::CallFault;
using gpu_emulator::DriverCall;
using gpu_emulator::DriverFault;
using gpu_emulator::StreamOrder;
using gpu_emulator::StreamTimes;
using Start = std::function<void()>;  // plants the fault; a scenario calls it once it is set up

struct CallOracles {
  DriverCall call;
  const char* name;
  CallFault fault;
  // A letter for each call, or one letter for the fault in all calls.
  std::string letters;
  bool every = false;
  bool all_times = true;  // false: a call of one stream only, where times change nothing
};

struct Scenario {
  const char* name;
  absl::Status (*run)(const Start& start);  // DataLoss: a result is wrong
  std::vector<int> streams;                 // that do its work, by number
  std::vector<CallOracles> oracles;
  unsigned most_seconds = 30;  // then the program does not end
};

inline void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

struct Outcome {
  char letter = '-';
  std::array<int64_t, gpu_emulator::kDriverCalls> calls = {};
};

// Runs the scenario in a process of its own, because a fault may end it.
inline Outcome RunWith(const Scenario& scenario, const DriverFault& fault,
                       const StreamTimes& times) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(scenario.most_seconds);
    const EmulatorFaults emulator;
    Outcome outcome;
    const absl::Status status = scenario.run([&] {
      emulator.OrderStreams(times);
      emulator.Plant(fault);
    });
    for (int call = 0; call < gpu_emulator::kDriverCalls; ++call) {
      outcome.calls[call] = emulator.calls(static_cast<DriverCall>(call));
    }
    if (!status.ok()) outcome.letter = absl::IsDataLoss(status) ? 'b' : 'e';
    _exit(write(ends[1], &outcome, sizeof(outcome)) == sizeof(outcome) ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  const bool ended = read(ends[0], &outcome, sizeof(outcome)) == sizeof(outcome);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (ended) return outcome;
  outcome.letter = !WIFSIGNALED(status)          ? '?'
                   : WTERMSIG(status) == SIGALRM ? 'd'
                   : WTERMSIG(status) == SIGABRT ? 'c'
                                                 : 's';
  return outcome;
}

// Returns the letter of the first oracle that speaks with some times of the streams, or '='.
inline char FirstOracleOf(const Scenario& scenario, const DriverFault& fault, bool all_times) {
  std::vector<StreamTimes> all = {{}};
  if (all_times) {
    all.push_back({.order = StreamOrder::kHostFirst});
    for (const int stream : scenario.streams) {
      all.push_back({.order = StreamOrder::kEarly, .only = stream});
    }
  }
  for (const StreamTimes& times : all) {
    const char letter = RunWith(scenario, fault, times).letter;
    if (letter != '-') return letter;
  }
  return '=';
}

// Plants every fault of the scenario.
inline void ExpectOracles(const Scenario& scenario) {
  const Outcome right = RunWith(scenario, {}, {});
  ASSERT_EQ(right.letter, '-');
  for (const CallOracles& oracles : scenario.oracles) {
    const int64_t calls = right.calls[static_cast<size_t>(oracles.call)];
    std::string actual;
    for (int64_t i = 0; i < (oracles.every ? 1 : calls); ++i) {
      actual += FirstOracleOf(
          scenario, {.fault = oracles.fault, .call = oracles.call, .index = oracles.every ? -1 : i},
          oracles.all_times);
    }
    EXPECT_GT(calls, 0) << oracles.name;
    std::string expected = oracles.letters;
    for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
      if (expected[i] == '*' && actual[i] != '=') expected[i] = actual[i];
    }
    EXPECT_EQ(actual, expected) << oracles.name;
  }
}

inline CallOracles LeftOut(DriverCall call, const char* name, const char* letters,
                           bool every = false) {
  return {
      .call = call, .name = name, .fault = CallFault::kLeftOut, .letters = letters, .every = every};
}

}  // namespace baton
