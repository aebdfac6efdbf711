// Sampling parameters on the wire and in our own type.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/sampling_defaults.h"
#include "common/sampling_params.h"

namespace baton {

// A field that is absent gets its default. InvalidArgument where a list is too long: none is copied
// then. Other values are for CheckSampling to check.
absl::StatusOr<SamplingParams> SamplingFromWire(const v1::SamplingParams& wire);
v1::SamplingParams SamplingToWire(const SamplingParams& sampling);

// Of what a model's file recommends. Fields out of range count as absent: peers are not trusted.
SamplingDefaults SamplingDefaultsFromWire(const v1::SamplingParams& wire);
v1::SamplingParams SamplingDefaultsToWire(const SamplingDefaults& defaults);

}  // namespace baton
