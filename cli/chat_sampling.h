// How tokens of a conversation are chosen: `baton chat`, and --chat of `run` and `generate`.
//
// Each setting comes from its flag, else from the model's file (SamplingDefaults), else from the
// constants below. Temperature 1, a request's default, makes small models talk nonsense; so does
// 0.7 with the default model. Jobs of --jobs, --prompt and the API keep a request's defaults.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/sampling_defaults.h"
#include "common/sampling_params.h"

namespace baton {

inline constexpr float kChatTemperature = 0.4f;
inline constexpr float kChatTopP = 0.9f;

// Whether the command line gives the flag of this name, "--temperature".
using FlagIsGiven = std::function<bool(const std::string& flag)>;

// Sets the fields of `sampling` that no flag gives.
void SetChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                     SamplingParams& sampling);

// "temperature 0.4 (default), top-k 20 (model), top-p 0.8 (flag)": for each setting its value and
// its source. A setting that is off and that nothing names is left out.
std::string DescribeChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                                 const SamplingParams& sampling);

// For the help of commands with a conversation.
extern const char kChatSamplingHelp[];

}  // namespace baton
