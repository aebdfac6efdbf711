// From a GGUF file to a model that can run: identity, tokenizer, weights on the device.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_options.h"
#include "engine/model_info.h"
#include "kernels/device.h"
#include "model/architecture.h"
#include "model/architectures.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

// ${BATON_MODEL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/models}, /tmp/baton/models where none of
// the three is set (as scripts/fetch_model.sh has it), and the default model in it.
std::string ModelDirectory();
std::string DefaultModelPath();

// Everything but the weights: fast, for tokenising and inspecting. Fingerprinting reads the whole
// file and is left out. Unimplemented: the file's architecture is none of `known`.
absl::StatusOr<ModelInfo> ReadModelInfo(const GgufFile& file, const std::string& path,
                                        ArchitectureList known = Architectures());

// The file's recommended sampling: `general.sampling.temp`, `top_k`, `top_p`, `min_p` and
// `penalty_repeat`. A value of a wrong type or out of range counts as absent, with a warning in the
// log.
SamplingDefaults ReadSamplingDefaults(const GgufFile& file);
// The tokenizer's vocabulary, merges and special ids. Errors name the key.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file);

// 128 bits over hyper-parameters and every tensor's name, type, shape and data.
std::string ModelFingerprint(const GgufFile& file);

// A model ready to run. Members depend on those above them.
struct LoadedModel {
  ModelInfo info;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Device> device;
  std::unique_ptr<ModelWeights> weights;
  // What the settings of these names came to on this machine.
  int32_t threads = 0;
  std::string instruction_set;

  // For people.
  std::string Description(int32_t context_length) const;
};
// Reads the settings `model`, `device`, `threads`, `instruction_set` and `architectures`. Errors of
// ReadModelInfo, and of CheckKvCacheSpec for the model's KV groups.
absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options);

// Opens `path` (empty: the default model). NotFound says how to fetch the default model.
absl::StatusOr<std::unique_ptr<GgufFile>> OpenModel(const std::string& path);

}  // namespace baton
