// Times repeated runs of a function.
#pragma once

#include <algorithm>
#include <chrono>

namespace baton {

// Times of several runs. A neighbour on the machine only makes runs slower, so the best run shows
// what the code can do; the mean shows what it did.
struct RunTimes {
  double best_s = 1e9;
  double total_s = 0;
  int runs = 0;

  double mean_s() const { return total_s / runs; }
};

// Runs fn() at least three times, and for `least_s` seconds unless that takes very many runs. Adds
// the runs to `times`.
template <typename Function>
void TimeRuns(const Function& fn, double least_s, RunTimes& times) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLeastRuns = 3;
  constexpr int kMostRuns = 10'000;
  double total_s = 0;
  for (int run = 0; run < kLeastRuns || (total_s < least_s && run < kMostRuns); ++run) {
    const auto start = Clock::now();
    fn();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    times.best_s = std::min(times.best_s, seconds);
    total_s += seconds;
    ++times.runs;
  }
  times.total_s += total_s;
}

// The seconds of the fastest run.
template <typename Function>
double BestSeconds(const Function& fn, double least_s) {
  RunTimes times;
  TimeRuns(fn, least_s, times);
  return times.best_s;
}

}  // namespace baton
