// Sampling of conversations: `baton chat`, and --chat of `run` and `generate`.
//
// Each setting comes from its flag, else from the model's file (SamplingDefaults), else from the
// constants below. At temperature 1, a request's default, small models talk nonsense. The default
// model does so even at 0.7. Jobs of --jobs, --prompt and the API keep a request's defaults.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/sampling_defaults.h"
#include "common/sampling_params.h"

namespace baton {

inline constexpr float kChatTemperature = 0.4f;
inline constexpr float kChatTopP = 0.9f;

// Returns true if the command line has the flag of this name, such as "--temperature".
using FlagIsGiven = std::function<bool(const std::string& flag)>;

// Sets the fields of `sampling` that have no flag on the command line.
void SetChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                     SamplingParams& sampling);

// Returns each setting with its value and source, such as "temperature 0.4 (default), top-k 20
// (model), top-p 0.9 (flag)". Leaves out a setting that is off and has no source.
std::string DescribeChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                                 const SamplingParams& sampling);

// Returns DescribeChatSampling's list as a line of --show-settings that begins with
// "conversations: ". `sampling` has the values of the flags. Without `model`, because only the
// router knows it, the line says that the model may recommend other values.
std::string ChatSamplingLine(const std::optional<SamplingDefaults>& model,
                             const FlagIsGiven& is_given, SamplingParams sampling);

// Help text for commands with a conversation.
extern const char kChatSamplingHelp[];

}  // namespace baton
