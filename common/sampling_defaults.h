// Sampling settings that a model's file recommends for conversations. They affect only requests
// whose clients send them.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling_params.h"

namespace baton {

// Same units as the fields of SamplingParams. A field is absent if the model's file has no value.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};

  bool operator==(const SamplingDefaults&) const = default;
};

// Removes every field that is NaN or out of its range (CheckSampling), because files and peers are
// not trusted. Returns a sentence for each removed field, with its value and the range.
std::vector<std::string> RemoveWrongFields(SamplingDefaults& defaults);

}  // namespace baton
