#include "engine/model_loader.h"

#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/create_device.h"
#include "model/tensor_parallel_weights.h"

namespace baton {
namespace {

constexpr char kDefaultModelFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string EnvironmentOr(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

absl::StatusOr<std::optional<TokenId>> ReadTokenId(const GgufFile& file, std::string_view key,
                                                   size_t vocabulary) {
  if (!file.HasKey(key)) return std::optional<TokenId>();
  ASSIGN_OR_RETURN(const int64_t id, file.GetI64(key));
  if (id < 0 || static_cast<uint64_t>(id) >= vocabulary) {
    return absl::InvalidArgumentError(
        StrCat("gguf: ", key, " is ", id, ", the vocabulary has ", vocabulary, " tokens"));
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

}  // namespace

std::string ModelDirectory() {
  const std::string home = EnvironmentOr("HOME", "");
  const std::string cache =
      EnvironmentOr("XDG_CACHE_HOME", home.empty() ? "/tmp" : home + "/.cache");
  return EnvironmentOr("BATON_MODEL_DIR", cache + "/baton/models");
}

std::string DefaultModelPath() { return ModelDirectory() + "/" + kDefaultModelFile; }

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file) {
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  spec.model = std::string(model);
  ASSIGN_OR_RETURN(const std::string_view pre, file.GetStringOr("tokenizer.ggml.pre", "gpt-2"));
  spec.pre = std::string(pre);
  ASSIGN_OR_RETURN(const auto tokens, file.GetStringArray("tokenizer.ggml.tokens"));
  spec.tokens.assign(tokens.begin(), tokens.end());
  if (file.HasKey("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(spec.token_types, file.GetI32Array("tokenizer.ggml.token_type"));
  }
  ASSIGN_OR_RETURN(const auto merges, file.GetStringArray("tokenizer.ggml.merges"));
  spec.merges.assign(merges.begin(), merges.end());
  const size_t size = spec.tokens.size();
  ASSIGN_OR_RETURN(spec.bos, ReadTokenId(file, "tokenizer.ggml.bos_token_id", size));
  ASSIGN_OR_RETURN(spec.eos, ReadTokenId(file, "tokenizer.ggml.eos_token_id", size));
  ASSIGN_OR_RETURN(spec.eot, ReadTokenId(file, "tokenizer.ggml.eot_token_id", size));
  ASSIGN_OR_RETURN(spec.add_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token", false));
  ASSIGN_OR_RETURN(spec.add_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  return spec;
}

SamplingDefaults ReadSamplingDefaults(const GgufFile& file) {
  SamplingDefaults out;
  std::vector<std::string> problems;
  const auto read = [&](std::string_view key, auto& field, const auto& value) {
    if (!file.HasKey(key)) return;
    if (value.ok()) {
      field = static_cast<typename std::decay_t<decltype(field)>::value_type>(*value);
    } else {
      problems.emplace_back(value.status().message());
    }
  };
  constexpr std::string_view kTemperature = "general.sampling.temp";
  constexpr std::string_view kTopK = "general.sampling.top_k";
  constexpr std::string_view kTopP = "general.sampling.top_p";
  constexpr std::string_view kMinP = "general.sampling.min_p";
  constexpr std::string_view kRepeat = "general.sampling.penalty_repeat";
  read(kTemperature, out.temperature, file.GetF32(kTemperature));
  read(kTopP, out.top_p, file.GetF32(kTopP));
  read(kMinP, out.min_p, file.GetF32(kMinP));
  read(kRepeat, out.repetition_penalty, file.GetF32(kRepeat));
  const absl::StatusOr<int64_t> top_k = file.GetI64(kTopK);
  read(kTopK, out.top_k, top_k);
  if (top_k.ok() && (*top_k < 0 || *top_k > std::numeric_limits<int32_t>::max())) {
    problems.push_back(StrCat(kTopK, " is ", *top_k, "; 0 to ", std::numeric_limits<int32_t>::max(),
                              " is allowed"));
    out.top_k.reset();
  }
  for (std::string& wrong : RemoveWrongFields(out)) problems.push_back(std::move(wrong));
  for (const std::string& problem : problems) {
    LOG(WARNING) << "the model's recommended sampling: " << Printable(problem) << "; ignored";
  }
  return out;
}

namespace {

// True for keys that an answer depends on: hyper-parameters, and keys of the tokenizer, of end
// tokens and of the chat template.
bool IsOfTheModel(std::string_view key, std::string_view architecture) {
  const size_t dot = architecture.size();
  return key.starts_with("tokenizer.") ||
         (key.starts_with(architecture) && key.size() > dot && key[dot] == '.');
}

}  // namespace

std::string ModelFingerprint(const GgufFile& file) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  const std::string_view architecture =
      file.GetStringOr("general.architecture", "").value_or(std::string_view());
  for (const std::string_view key : file.keys()) {
    if (!IsOfTheModel(key, architecture)) continue;
    const GgufValue& value = *file.Find(key);
    XXH3_128bits_update(state, key.data(), key.size());
    XXH3_128bits_update(state, value.bytes.data(), value.bytes.size());
  }
  for (const GgufTensor& tensor : file.tensors()) {
    XXH3_128bits_update(state, tensor.name.data(), tensor.name.size());
    XXH3_128bits_update(state, &tensor.type, sizeof(tensor.type));
    XXH3_128bits_update(state, tensor.dimensions.data(), sizeof(tensor.dimensions));
    XXH3_128bits_update(state, tensor.data.data(), tensor.data.size());
    file.Release(tensor);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::StatusOr<ModelInfo> ReadModelInfo(const GgufFile& file, const std::string& path,
                                        ArchitectureList known) {
  ModelInfo info;
  info.path = path;
  ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(file, known));
  ASSIGN_OR_RETURN(info.spec, architecture->ReadSpec(file));
  if (info.spec.name.empty()) info.spec.name = std::filesystem::path(path).stem().string();
  ASSIGN_OR_RETURN(info.tokenizer, ReadTokenizerSpec(file));
  if (info.tokenizer.tokens.size() != static_cast<size_t>(info.spec.vocabulary)) {
    return absl::InvalidArgumentError(StrCat(
        "gguf: tokenizer.ggml.tokens has ", info.tokenizer.tokens.size(),
        " entries, but token_embd.weight has ", info.spec.vocabulary, " rows; they must be equal"));
  }
  ASSIGN_OR_RETURN(const std::string_view chat_template,
                   file.GetStringOr("tokenizer.chat_template", ""));
  info.chat_template = std::string(chat_template);
  info.sampling = ReadSamplingDefaults(file);
  return info;
}

namespace {

// A model without weights, and what loads them.
struct OpenedModel {
  std::unique_ptr<GgufFile> file;
  const Architecture* architecture = nullptr;
  LoadedModel model;
  DeviceGroup group;  // of several ranks, without the first device, which is the model's
};

absl::StatusOr<OpenedModel> Open(const EngineOptions& options) {
  OpenedModel out;
  LoadedModel& model = out.model;
  ASSIGN_OR_RETURN(out.file, OpenModel(options.model));
  ASSIGN_OR_RETURN(
      model.info,
      ReadModelInfo(*out.file, options.model.empty() ? DefaultModelPath() : options.model,
                    options.architectures));
  RETURN_IF_ERROR(CheckKvCacheSpec(model.info.spec.kv));
  ASSIGN_OR_RETURN(out.architecture, FindArchitecture(*out.file, options.architectures));
  DeviceOptions device{.name = options.device,
                       .threads = options.threads,
                       .instruction_set = options.instruction_set,
                       .numerics = options.numerics};
  RETURN_IF_ERROR(SettleDeviceOptions(device));
  model.threads = device.threads;
  model.instruction_set = device.instruction_set;
  model.tensor_parallel = options.tensor_parallel;
  if (options.tensor_parallel == 1) {
    ASSIGN_OR_RETURN(model.device, CreateDevice(device));
    model.pool_devices = {model.device.get()};
  } else {
    ASSIGN_OR_RETURN(out.group, CreateDeviceGroup(device, options.tensor_parallel));
    for (const auto& of_rank : out.group.devices) model.pool_devices.push_back(of_rank.get());
    model.pool_devices_reach_first = out.group.reach_first;
    model.device = std::move(out.group.devices.front());
    if (model.device->host_accessible()) model.pool_devices.resize(1);  // one pool for all ranks
    out.group.devices.erase(out.group.devices.begin());
  }
  model.numerics = NumericsName(model.device->numerics());
  return out;
}

}  // namespace

absl::Status CheckModelAndDevice(const EngineOptions& options,
                                 absl::FunctionRef<absl::Status(const LoadedModel&)> check) {
  ASSIGN_OR_RETURN(const OpenedModel opened, Open(options));
  return check(opened.model);
}

absl::StatusOr<LoadedModel> LoadModel(const EngineOptions& options) {
  ASSIGN_OR_RETURN(OpenedModel opened, Open(options));
  LoadedModel model = std::move(opened.model);
  model.info.fingerprint = ModelFingerprint(*opened.file);
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Create(model.info.tokenizer));
  if (options.tensor_parallel == 1) {
    ASSIGN_OR_RETURN(model.weights, opened.architecture->Load(*opened.file, *model.device));
  } else {
    ASSIGN_OR_RETURN(model.weights, LoadTensorParallel(*opened.architecture, *opened.file,
                                                       *model.device, std::move(opened.group)));
  }
  return model;
}

std::string LoadedModel::DeviceDescription() const {
  if (tensor_parallel == 1) return device->Description();
  if (pool_devices.size() == 1) {
    return StrCat(tensor_parallel, " ranks, each on ", device->Description());
  }
  std::string description = StrCat(tensor_parallel, " ranks");
  for (const Device* const of_rank : pool_devices) {
    description += StrCat("; ", of_rank->Description());
  }
  return description;
}

std::string LoadedModel::Description(int32_t context_length) const {
  constexpr int64_t kMiB = 1 << 20;
  return absl::StrFormat(
      "%s from %s (%s, %d layers, vocabulary %d, context %d), weights %d MiB, fingerprint %s",
      info.spec.name, info.path, info.spec.architecture, info.spec.layers, info.spec.vocabulary,
      context_length, weights->bytes() / kMiB, info.fingerprint);
}

absl::StatusOr<std::unique_ptr<GgufFile>> OpenModel(const std::string& path) {
  if (!path.empty()) {
    absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
    if (file.ok()) return file;
    return absl::Status(file.status().code(), StrCat("--model: ", file.status().message()));
  }
  const std::string default_path = DefaultModelPath();
  if (!std::filesystem::exists(default_path)) {
    return absl::NotFoundError(StrCat("the default model ", default_path,
                                      " does not exist: run scripts/fetch_model.sh to fetch it, or "
                                      "name another with --model FILE.gguf"));
  }
  return GgufFile::Open(default_path);
}

}  // namespace baton
