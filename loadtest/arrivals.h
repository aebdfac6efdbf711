// Arrival processes: the times at which a load test intends to send its requests.
//
//   poisson   exponential gaps: users who do not know of each other
//   gamma     gamma gaps. The burstiness is the shape: 1 is poisson; below 1, requests come in
//             bursts; above 1, more evenly
//   constant  equal gaps
//   trace     the times of the workload's trace
//   closed    a fixed number of clients. Each sends its next request when its answer has ended, so
//             a slow service gets less load
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/seeded_random.h"

namespace baton {

enum class ArrivalKind : uint8_t { kPoisson, kGamma, kConstant, kTrace, kClosed };

// In the order of ArrivalKind.
const std::vector<std::string>& ArrivalNames();
// InvalidArgument names the value and the names allowed.
absl::StatusOr<ArrivalKind> ParseArrivalKind(const std::string& name);

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate_per_s = 1;  // > 0; mean rate
  double burstiness = 1;  // > 0; shape of the gaps, only with kGamma
  uint64_t seed = 0;
};

// Times of the processes that have times of their own: poisson, gamma, constant.
class ArrivalTimes {
 public:
  explicit ArrivalTimes(const ArrivalOptions& options) : options_(options), random_(options.seed) {}

  // Returns the next time in microseconds from the start of the run. The first is 0.
  int64_t NextUs();

 private:
  const ArrivalOptions options_;
  SeededRandom random_;
  double at_us_ = -1;  // negative: nothing has been returned yet
};

}  // namespace baton
