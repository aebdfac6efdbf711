#include "loadtest/mock_times.h"

namespace baton {
namespace {

int64_t AfterMockStall(const MockTimes& times, int64_t at_us) {
  if (times.stall_us <= 0 || times.stall_every_us <= 0) return at_us;
  const int64_t in_interval = at_us % times.stall_every_us;
  const bool is_stalled = in_interval >= times.stall_every_us - times.stall_us;
  return is_stalled ? at_us - in_interval + times.stall_every_us : at_us;
}

}  // namespace

std::vector<int64_t> TokenTimes(const MockTimes& times, int64_t arrival_us, int32_t tokens) {
  std::vector<int64_t> out;
  int64_t at_us = arrival_us + times.ttft_us;
  for (int32_t i = 0; i < tokens; ++i) {
    at_us = AfterMockStall(times, at_us);
    out.push_back(at_us);
    at_us += times.itl_us;
  }
  return out;
}

}  // namespace baton
