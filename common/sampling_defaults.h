// The sampling settings that a model's file recommends. They are hints for conversations: no
// request gets them unless its client asks for it by sending them.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/sampling_params.h"

namespace baton {

// As the fields of SamplingParams. Absent where the model's file says nothing.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};

  bool operator==(const SamplingDefaults&) const = default;
};

// Removes every field that is out of its range (CheckSampling), NaN included. Files and peers are
// not trusted. Returns a sentence for each removed field, with its value and the range.
std::vector<std::string> RemoveWrongFields(SamplingDefaults& defaults);

}  // namespace baton
