#include "cli/chat_sampling.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Calls `visit` for each setting with its name, the model's value, the default and the field.
template <typename Visit>
void ForEachSetting(const SamplingDefaults& model, SamplingParams& sampling, const Visit& visit) {
  const SamplingParams off;
  visit("temperature", model.temperature, kChatTemperature, sampling.temperature);
  visit("top-k", model.top_k, off.top_k, sampling.top_k);
  visit("top-p", model.top_p, kChatTopP, sampling.top_p);
  visit("min-p", model.min_p, off.min_p, sampling.min_p);
  visit("repetition-penalty", model.repetition_penalty, off.repetition_penalty,
        sampling.repetition_penalty);
}

bool Given(const FlagIsGiven& is_given, const char* name) {
  return is_given(absl::StrCat("--", name));
}

}  // namespace

const char kChatSamplingHelp[] =
    "Conversations: a sampling option that is not given has the value that the model's file\n"
    "recommends (general.sampling.temp, top_k, top_p, min_p, penalty_repeat). If the file "
    "recommends\n"
    "none, the defaults are --temperature 0.4 and --top-p 0.9.";

void SetChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                     SamplingParams& sampling) {
  ForEachSetting(model, sampling,
                 [&](const char* name, const auto& of_model, auto otherwise, auto& field) {
                   if (!Given(is_given, name)) field = of_model.value_or(otherwise);
                 });
}

std::string DescribeChatSampling(const SamplingDefaults& model, const FlagIsGiven& is_given,
                                 const SamplingParams& sampling) {
  std::string out;
  SamplingParams shown = sampling;
  ForEachSetting(
      model, shown,
      [&](const char* name, const auto& of_model, auto /*otherwise*/, const auto& field) {
        const bool given = Given(is_given, name);
        const std::string_view setting(name);
        const bool has_default = setting == "temperature" || setting == "top-p";
        if (!given && !of_model && !has_default) return;
        const char* const source = given ? "flag" : of_model ? "model" : "default";
        absl::StrAppend(&out, out.empty() ? "" : ", ", name, " ", field, " (", source, ")");
      });
  return out;
}

std::string ChatSamplingLine(const std::optional<SamplingDefaults>& model,
                             const FlagIsGiven& is_given, SamplingParams sampling) {
  const SamplingDefaults known = model.value_or(SamplingDefaults());
  SetChatSampling(known, is_given, sampling);
  return absl::StrCat("conversations: ", DescribeChatSampling(known, is_given, sampling),
                      model ? "" : "; the router's model may recommend others, except for flags",
                      "\n");
}

}  // namespace baton
