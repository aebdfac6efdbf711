// Converts sampling parameters between the wire and SamplingParams.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/sampling_defaults.h"
#include "common/sampling_params.h"

namespace baton {

// Absent fields get their defaults. InvalidArgument: a list is too long; nothing is copied then.
// CheckSampling checks the other values.
absl::StatusOr<SamplingParams> SamplingFromWire(const v1::SamplingParams& wire);
v1::SamplingParams SamplingToWire(const SamplingParams& sampling);

// Recommended sampling. Fields out of range count as absent, because peers are not trusted.
SamplingDefaults SamplingDefaultsFromWire(const v1::SamplingParams& wire);
v1::SamplingParams SamplingDefaultsToWire(const SamplingDefaults& defaults);

}  // namespace baton
