#include "common/sampling_defaults.h"

#include "absl/status/status.h"
#include "common/request_check.h"

namespace baton {
namespace {

// Removes `value` if CheckSampling refuses it as `field` of a request.
template <typename Value>
void Check(std::optional<Value>& value, Value SamplingParams::*field,
           std::vector<std::string>& reasons) {
  if (!value) return;
  SamplingParams sampling;
  sampling.*field = *value;
  const absl::Status status = CheckSampling(sampling);
  if (status.ok()) return;
  reasons.emplace_back(status.message());
  value.reset();
}

}  // namespace

std::vector<std::string> RemoveWrongFields(SamplingDefaults& defaults) {
  std::vector<std::string> reasons;
  Check(defaults.temperature, &SamplingParams::temperature, reasons);
  Check(defaults.top_k, &SamplingParams::top_k, reasons);
  Check(defaults.top_p, &SamplingParams::top_p, reasons);
  Check(defaults.min_p, &SamplingParams::min_p, reasons);
  Check(defaults.repetition_penalty, &SamplingParams::repetition_penalty, reasons);
  return reasons;
}

}  // namespace baton
