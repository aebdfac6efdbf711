// Loads a model from a GGUF file: identity, tokenizer, and weights on the device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_info.h"
#include "kernels/device.h"
#include "model/architecture.h"
#include "model/architectures.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

// The model directory, ${BATON_MODEL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/models}, and the
// path of the default model in it. If none of the three variables is set, the directory is
// /tmp/baton/models. scripts/fetch_model.sh uses the same rule.
std::string ModelDirectory();
std::string DefaultModelPath();

// Reads everything except the weights and the fingerprint. It is fast, for tokenising and
// inspecting; computing a fingerprint would read the whole file. Unimplemented: the file's
// architecture is not in `known`.
absl::StatusOr<ModelInfo> ReadModelInfo(const GgufFile& file, const std::string& path,
                                        ArchitectureList known = Architectures());

// Reads the sampling that the file recommends: `general.sampling.temp`, `top_k`, `top_p`, `min_p`
// and `penalty_repeat`. A value of a wrong type or out of range counts as absent, with a warning in
// the log.
SamplingDefaults ReadSamplingDefaults(const GgufFile& file);
// Reads the tokenizer's vocabulary, merges and special ids. Errors name the key.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file);

// Hex of a 128-bit hash over hyper-parameters, tokenizer, and every tensor's name, type, shape and
// data.
std::string ModelFingerprint(const GgufFile& file);

// A model that is ready to run. Members depend on those above them.
struct LoadedModel {
  ModelInfo info;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Device> device;  // of rank 0 if several ranks compute the model
  std::unique_ptr<ModelWeights> weights;
  // Devices that hold the KV pool: those of all ranks if each holds its heads, else `device`.
  std::vector<Device*> pool_devices;
  bool pool_devices_reach_first = false;  // DeviceGroup::reach_first
  // Effective values of these settings on this machine.
  int32_t threads = 0;
  std::string instruction_set;
  std::string numerics;
  int32_t tensor_parallel = 1;

  // Return a one-line summary for people.
  std::string Description(int32_t context_length) const;
  std::string DeviceDescription() const;
};
// Loads the model that the settings `model`, `device`, `threads`, `instruction_set`,
// `numerics`, `tensor_parallel` and `architectures` describe. Errors are those of ReadModelInfo, of
// CheckKvCacheSpec for the model's KV groups, and of Architecture::LoadRank.
absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options);

// Calls `check` with such a model without tokenizer, weights and fingerprint, and returns its
// result. It is fast, for a check of the settings. Errors: those of LoadModel before the weights.
absl::Status CheckModelAndDevice(const EngineOptions& options,
                                 absl::FunctionRef<absl::Status(const LoadedModel&)> check);

// Opens `path`, or the default model if it is empty. NotFound says how to fetch the default model.
absl::StatusOr<std::unique_ptr<GgufFile>> OpenModel(const std::string& path);

}  // namespace baton
