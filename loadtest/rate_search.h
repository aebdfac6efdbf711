// Searches the highest request rate at which a service meets its objectives for 99 % of requests.
//
// Each step is a run at one rate. The search doubles the rate until a step fails, then halves the
// interval on a logarithmic scale until it is at most 5 % wide. At last it confirms the rate in a
// run with other requests, because the best of several runs is partly luck. A rate that is not
// confirmed is lowered by 5 % and tried again. A run in which the load generator was late is
// repeated, at most twice. After that, the rate counts as failed.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace baton {

inline constexpr double kRateTargetShare = 0.99;
inline constexpr double kRateResolution = 1.05;
inline constexpr int kMostLateRuns = 3;  // at one rate

// Returns how sure it is that more than `share` of all requests are good, after `good` of
// `requests` were: 1 minus the probability to see so few bad ones if exactly `share` were good
// (binomial). 0 without requests.
double ShareConfidence(int64_t requests, int64_t good, double share);

struct RateStep {
  double rate_per_s = 0;
  int64_t requests = 0;
  int64_t good = 0;
  bool is_valid = true;  // the load generator kept its times
  bool is_confirmation = false;

  bool holds() const {
    return is_valid && requests > 0 &&
           static_cast<double>(good) >= kRateTargetShare * static_cast<double>(requests);
  }
};

class RateSearch {
 public:
  // REQUIRES: 0 < lowest <= start <= highest.
  RateSearch(double start, double lowest, double highest);

  // Returns the rate of the next run. nullopt: the search has ended.
  std::optional<double> NextRate() const;
  // True if the next run confirms a rate.
  bool confirms() const { return phase_ == Phase::kConfirm; }
  // Reports the run at NextRate(). REQUIRES: NextRate() has a value.
  void OnStep(RateStep step);

  const std::vector<RateStep>& steps() const { return steps_; }
  // The confirmed step. nullopt: not even `lowest` holds, or the search has not ended.
  std::optional<RateStep> result() const;
  // True if the result is `highest`, so that a higher rate may hold too.
  bool reached_highest() const;
  // Lowest rate that failed only because the load generator was late each time. 0: none.
  double lost_to_lateness() const { return lost_to_lateness_; }

 private:
  enum class Phase : uint8_t { kGrow, kShrink, kHalve, kConfirm, kEnded };

  void EnterHalving();

  const double lowest_;
  const double highest_;
  Phase phase_ = Phase::kGrow;
  double rate_;        // of the next run
  double holds_ = 0;   // highest rate that held; 0: none
  double fails_ = 0;   // lowest rate that failed; 0: none
  int late_runs_ = 0;  // at the present rate
  double lost_to_lateness_ = 0;
  std::vector<RateStep> steps_;
};

}  // namespace baton
