#include "rpc/sampling_wire.h"

#include <string>

#include "common/request_check.h"
#include "common/status_macros.h"

namespace baton {

absl::StatusOr<SamplingParams> SamplingFromWire(const v1::SamplingParams& wire) {
  RETURN_IF_ERROR(CheckCount("logit_bias", wire.logit_bias_size(), kMaxLogitBiases));
  RETURN_IF_ERROR(CheckCount("stop", wire.stop_size(), kMaxStopStrings));
  RETURN_IF_ERROR(CheckCount("stop_token_ids", wire.stop_token_ids_size(), kMaxStopTokens));
  SamplingParams out;
  if (wire.has_temperature()) out.temperature = wire.temperature();
  if (wire.has_top_k()) out.top_k = wire.top_k();
  if (wire.has_top_p()) out.top_p = wire.top_p();
  if (wire.has_min_p()) out.min_p = wire.min_p();
  if (wire.has_repetition_penalty()) out.repetition_penalty = wire.repetition_penalty();
  if (wire.has_presence_penalty()) out.presence_penalty = wire.presence_penalty();
  if (wire.has_frequency_penalty()) out.frequency_penalty = wire.frequency_penalty();
  for (const auto& [token, bias] : wire.logit_bias()) out.logit_bias[token] = bias;
  out.stop.assign(wire.stop().begin(), wire.stop().end());
  out.stop_token_ids.assign(wire.stop_token_ids().begin(), wire.stop_token_ids().end());
  if (wire.has_max_tokens()) out.max_tokens = wire.max_tokens();
  if (wire.has_min_tokens()) out.min_tokens = wire.min_tokens();
  if (wire.has_ignore_eos()) out.ignore_eos = wire.ignore_eos();
  if (wire.has_logprobs()) out.logprobs = wire.logprobs();
  if (wire.has_seed()) out.seed = wire.seed();
  return out;
}

v1::SamplingParams SamplingToWire(const SamplingParams& sampling) {
  v1::SamplingParams out;
  out.set_temperature(sampling.temperature);
  out.set_top_k(sampling.top_k);
  out.set_top_p(sampling.top_p);
  out.set_min_p(sampling.min_p);
  out.set_repetition_penalty(sampling.repetition_penalty);
  out.set_presence_penalty(sampling.presence_penalty);
  out.set_frequency_penalty(sampling.frequency_penalty);
  for (const auto& [token, bias] : sampling.logit_bias) (*out.mutable_logit_bias())[token] = bias;
  for (const std::string& stop : sampling.stop) out.add_stop(stop);
  out.mutable_stop_token_ids()->Add(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end());
  if (sampling.max_tokens) out.set_max_tokens(*sampling.max_tokens);
  out.set_min_tokens(sampling.min_tokens);
  out.set_ignore_eos(sampling.ignore_eos);
  if (sampling.logprobs) out.set_logprobs(*sampling.logprobs);
  if (sampling.seed) out.set_seed(*sampling.seed);
  return out;
}

SamplingDefaults SamplingDefaultsFromWire(const v1::SamplingParams& wire) {
  SamplingDefaults out;
  if (wire.has_temperature()) out.temperature = wire.temperature();
  if (wire.has_top_k()) out.top_k = wire.top_k();
  if (wire.has_top_p()) out.top_p = wire.top_p();
  if (wire.has_min_p()) out.min_p = wire.min_p();
  if (wire.has_repetition_penalty()) out.repetition_penalty = wire.repetition_penalty();
  RemoveWrongFields(out);
  return out;
}

v1::SamplingParams SamplingDefaultsToWire(const SamplingDefaults& defaults) {
  v1::SamplingParams out;
  if (defaults.temperature) out.set_temperature(*defaults.temperature);
  if (defaults.top_k) out.set_top_k(*defaults.top_k);
  if (defaults.top_p) out.set_top_p(*defaults.top_p);
  if (defaults.min_p) out.set_min_p(*defaults.min_p);
  if (defaults.repetition_penalty) out.set_repetition_penalty(*defaults.repetition_penalty);
  return out;
}

}  // namespace baton
