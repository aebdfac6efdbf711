// A Llama of a real shape whose weights are made on the device, for an engine. There is no file
// with weights. A small GGUF file has the tokenizer, and names the architecture "synthetic", which
// only this benchmark knows.
//
// A second GGUF file is in address space only: it has the shapes of all tensors and the contents of
// the norms. The matrices repeat a few packed rows, with other random signs, mantissas and integers
// in each place. The model is the same each time, for each block size, chunk and batch.
//
// Thread safety: immutable after creation. The device's kernel library must have the benchmarks'
// kernels, as in a pack of scripts/gpu_check.sh.
#pragma once

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/device_bench.h"
#include "bench/random_weights.h"
#include "bench/step_shapes.h"
#include "bench/step_stamps.h"
#include "common/status_macros.h"
#include "model/architecture.h"
#include "model/llama/llama_config.h"
#include "model/llama/llama_runner.h"
#include "model/llama/llama_weights.h"
#include "tests/model/gguf_builder.h"

namespace baton {

struct SyntheticShape {
  const char* name;
  LlamaShape shape;
};
inline constexpr SyntheticShape kSyntheticShapes[] = {
    {"smollm2", {30, 576, 9, 3, 64, 1536, 49152}},
    {"llama-8b", kLlama8B},
    {"qwen3-8b", {36, 4096, 32, 8, 128, 12288, 151936}},
    {"tiny", {2, 256, 4, 2, 64, 512, 512}}};

// Rows of weights, and a mask of the bits of their packed form that may have any value.
struct VariedPattern {
  std::vector<std::byte> packed, mask;
};

// Sets or clears the bits of weights that may have any value: of bf16 sign and mantissa, of blocks
// the integers.
inline void SetFreeBits(WeightFormat format, std::vector<std::byte>& weights, bool set) {
  const auto assign = [&](size_t at, unsigned bits) {
    const auto cleared = static_cast<unsigned>(weights[at]) & ~bits;
    weights[at] = static_cast<std::byte>(set ? cleared | bits : cleared);
  };
  if (format == WeightFormat::kBF16) {
    for (size_t at = 0; at < weights.size(); at += 2) {
      assign(at, 0x7f);
      assign(at + 1, 0x80);
    }
    return;
  }
  CHECK(format == WeightFormat::kQ8_0 || format == WeightFormat::kQ4_0 ||
        format == WeightFormat::kQ4_K);
  const size_t block = format == WeightFormat::kQ8_0   ? 34
                       : format == WeightFormat::kQ4_0 ? 18
                                                       : 144;
  const size_t header = format == WeightFormat::kQ4_K ? 16 : 2;  // scales
  for (size_t at = 0; at < weights.size(); ++at) {
    if (at % block >= header) assign(at, 0xff);
  }
}

// Makes the matrices of a model on its device.
class WeightMaker {
 public:
  explicit WeightMaker(Device& device) : bench_(device, /*seed=*/16, /*least_s=*/0) {}

  // OK if the device has the kernel.
  absl::Status Check() {
    const VaryBitsParams params = {};
    return bench_.stream().Prepare([&] {
      bench_.launcher().Launch("baton_vary_bits", {{1, 1, 1}, {kVaryThreads, 1, 1}, 0}, &params,
                               sizeof(params));
    });
  }

  absl::Status Make(const PackedMatrix& matrix, std::byte* to) {
    const Pattern& pattern = PatternOf(matrix);
    const auto bytes = static_cast<int64_t>(
        bench_.device().ops().PackedBytes(matrix.format, matrix.rows, matrix.cols));
    CHECK_EQ(bytes % 4, 0);
    const VaryBitsParams params = {.words = reinterpret_cast<uint32_t*>(to),
                                   .count = bytes / 4,
                                   .pattern = pattern.packed->as<uint32_t>(),
                                   .mask = pattern.mask->as<uint32_t>(),
                                   .pattern_count = pattern.words,
                                   .seed = ++made_ * 0xd1342543de82ef95u};
    bench_.launcher().Launch(
        "baton_vary_bits",
        {{8 * bench_.launcher().multiprocessors(), 1, 1}, {kVaryThreads, 1, 1}, 0}, &params,
        sizeof(params));
    bench_.stream().Synchronize();
    return bench_.device().Health();
  }

 private:
  static constexpr int64_t kRows = 64;  // a multiple of the rows of each layout's tile
  struct Pattern {
    std::unique_ptr<DeviceBuffer> packed, mask;
    int64_t words = 0;
  };

  const Pattern& PatternOf(const PackedMatrix& matrix) {
    Pattern& pattern = patterns_[{matrix.format, matrix.cols}];
    if (pattern.packed != nullptr) return pattern;
    const Ops& ops = bench_.device().ops();
    std::vector<std::byte> source =
        RandomWeights(matrix.format, kRows, matrix.cols, bench_.random());
    const auto packed = [&] {
      std::vector<std::byte> bytes(ops.PackedBytes(matrix.format, kRows, matrix.cols));
      ops.PackMatrix(matrix.format, kRows, matrix.cols, source.data(), bytes.data());
      return bytes;
    };
    const std::vector<std::byte> random = packed();
    SetFreeBits(matrix.format, source, false);
    std::vector<std::byte> mask = packed();
    SetFreeBits(matrix.format, source, true);
    const std::vector<std::byte> set = packed();
    for (size_t i = 0; i < mask.size(); ++i) mask[i] ^= set[i];
    CHECK_EQ(mask.size() % 4, 0u);
    pattern.packed = bench_.Holding(random);
    pattern.mask = bench_.Holding(mask);
    pattern.words = static_cast<int64_t>(mask.size() / 4);
    return pattern;
  }

  DeviceBench bench_;
  std::map<std::pair<WeightFormat, int64_t>, Pattern> patterns_;
  uint64_t made_ = 0;
};

// A GGUF file of the given tensors without the contents of its matrices. Norms are 1.
class ShapeOnlyFile {
 public:
  ShapeOnlyFile(const LlamaShape& shape, WeightFormat format) {
    GgufBuilder builder;
    const auto count = [&](const char* key, int64_t value) {
      builder.Scalar(key, GgufValueType::kUint32, static_cast<uint32_t>(value));
    };
    builder.String("general.architecture", "llama");
    count("llama.block_count", shape.layers);
    count("llama.context_length", 8192);
    count("llama.embedding_length", shape.hidden);
    count("llama.feed_forward_length", shape.inner);
    count("llama.attention.head_count", shape.heads);
    count("llama.attention.head_count_kv", shape.kv_heads);
    count("llama.attention.key_length", shape.head_dim);
    count("llama.rope.dimension_count", shape.head_dim);
    builder.Scalar("llama.attention.layer_norm_rms_epsilon", GgufValueType::kFloat32, 1e-5f);
    builder.Scalar("llama.rope.freq_base", GgufValueType::kFloat32, 500'000.0f);
    uint64_t at = 0;
    const auto norm = [&](const std::string& name) {
      builder.TensorInfo(name, {static_cast<uint64_t>(shape.hidden)},
                         static_cast<uint32_t>(GgmlType::kF32), at);
      at += static_cast<uint64_t>(shape.hidden) * sizeof(float);
    };
    norm("output_norm.weight");
    for (int64_t i = 0; i < shape.layers; ++i) {
      norm("blk." + std::to_string(i) + ".attn_norm.weight");
      norm("blk." + std::to_string(i) + ".ffn_norm.weight");
    }
    const uint64_t norms = at / sizeof(float);
    const GgmlType type = TypeOf(format);
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
      builder.TensorInfo(name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                         static_cast<uint32_t>(type), at);
      at += static_cast<uint64_t>(rows * cols) / GgmlBlockValues(type) * GgmlBlockBytes(type);
      at = (at + builder.alignment - 1) / builder.alignment * builder.alignment;
    };
    matrix("token_embd.weight", shape.vocabulary, shape.hidden);
    for (int64_t i = 0; i < shape.layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      const int64_t kv = shape.kv_heads * shape.head_dim;
      matrix(layer + "attn_q.weight", shape.q_size(), shape.hidden);
      matrix(layer + "attn_k.weight", kv, shape.hidden);
      matrix(layer + "attn_v.weight", kv, shape.hidden);
      matrix(layer + "attn_output.weight", shape.hidden, shape.q_size());
      matrix(layer + "ffn_gate.weight", shape.inner, shape.hidden);
      matrix(layer + "ffn_up.weight", shape.inner, shape.hidden);
      matrix(layer + "ffn_down.weight", shape.hidden, shape.inner);
    }
    std::string header = builder.Build();
    header.resize((header.size() + builder.alignment - 1) / builder.alignment * builder.alignment);
    bytes_ = header.size() + at;
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory_ != MAP_FAILED) << "no address space of " << bytes_ << " bytes";
    auto* const begin = static_cast<std::byte*>(memory_);
    std::memcpy(begin, header.data(), header.size());
    const float one = 1;
    for (uint64_t i = 0; i < norms; ++i) {
      std::memcpy(begin + header.size() + i * sizeof(float), &one, sizeof(one));
    }
    auto file = GgufFile::FromBytes({begin, bytes_});
    CHECK(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  ~ShapeOnlyFile() { munmap(memory_, bytes_); }
  ShapeOnlyFile(const ShapeOnlyFile&) = delete;
  ShapeOnlyFile& operator=(const ShapeOnlyFile&) = delete;

  const GgufFile& get() const { return *file_; }

 private:
  static GgmlType TypeOf(WeightFormat format) {
    switch (format) {
      case WeightFormat::kQ8_0:
        return GgmlType::kQ8_0;
      case WeightFormat::kQ4_0:
        return GgmlType::kQ4_0;
      case WeightFormat::kQ4_K:
        return GgmlType::kQ4_K;
      default:
        CHECK(format == WeightFormat::kBF16) << "no synthetic model of this format";
        return GgmlType::kBF16;
    }
  }

  void* memory_ = nullptr;
  size_t bytes_ = 0;
  std::unique_ptr<GgufFile> file_;
};

// Writes the file that the engine opens: a tokenizer of `vocabulary` tokens, and no tensors.
inline void WriteTokenizerFile(const std::string& path, const std::string& name,
                               int64_t vocabulary) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const size_t control = tokens.size();
  // GPT-2's printable character of each byte.
  int hidden = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int character = printable ? byte : 256 + hidden++;
    tokens.push_back(character < 0x80 ? std::string(1, static_cast<char>(character))
                                      : std::string{static_cast<char>(0xc0 | character >> 6),
                                                    static_cast<char>(0x80 | (character & 0x3f))});
  }
  while (tokens.size() < static_cast<size_t>(vocabulary)) {
    tokens.push_back("token" + std::to_string(tokens.size()));
  }
  std::string texts, types;
  for (size_t i = 0; i < tokens.size(); ++i) {
    texts += GgufBuilder::Text(tokens[i]);
    types += GgufBuilder::Raw<int32_t>(i < control ? 3 : 1);
  }
  GgufBuilder builder;
  builder.String("general.architecture", "synthetic")
      .String("synthetic.name", name)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Array("tokenizer.ggml.tokens", GgufValueType::kString, tokens.size(), texts)
      .Array("tokenizer.ggml.token_type", GgufValueType::kInt32, tokens.size(), types)
      .Array("tokenizer.ggml.merges", GgufValueType::kString, 0, "")
      .Scalar("tokenizer.ggml.bos_token_id", GgufValueType::kUint32, uint32_t{1})
      .Scalar("tokenizer.ggml.eos_token_id", GgufValueType::kUint32, uint32_t{2});
  std::ofstream(path, std::ios::binary) << builder.Build();
}

// The weights of a synthetic model. Runners work on a device that stamps the times of steps.
class SyntheticWeights final : public ModelWeights {
 public:
  SyntheticWeights(LlamaConfig config, std::unique_ptr<LlamaWeights> weights, Device& device)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        stamps_(device),
        device_(device, stamps_) {}

  const StepStamps& stamps() const { return stamps_; }
  size_t bytes() const override { return weights_->bytes(); }
  ModelCost cost() const override { return {}; }
  absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions& options) const override {
    return LlamaRunner::Create(config_, *weights_, layout, pools.of(0), device_, options);
  }

 private:
  const LlamaConfig config_;
  const std::unique_ptr<LlamaWeights> weights_;
  const StepStamps stamps_;
  mutable StampedDevice device_;
};

class SyntheticLlama final : public Architecture {
 public:
  SyntheticLlama(const LlamaShape& shape, WeightFormat format) : file_(shape, format) {}

  std::string_view name() const override { return "synthetic"; }
  absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& /*file*/) const override {
    ASSIGN_OR_RETURN(const Architecture* llama, FindArchitecture(file_.get()));
    return llama->ReadSpec(file_.get());
  }
  absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& /*file*/,
                                                     Device& device) const override {
    ASSIGN_OR_RETURN(LlamaConfig config, ReadLlamaConfig(file_.get()));
    WeightMaker maker(device);
    RETURN_IF_ERROR(maker.Check());
    ASSIGN_OR_RETURN(auto weights,
                     LlamaWeights::Load(file_.get(), config, device, nullptr, {},
                                        [&](const PackedMatrix& matrix, std::byte* to) {
                                          return maker.Make(matrix, to);
                                        }));
    auto model = std::make_unique<SyntheticWeights>(std::move(config), std::move(weights), device);
    loaded_ = model.get();
    return model;
  }

  // The weights that were loaded last. REQUIRES: their engine exists.
  const SyntheticWeights& loaded() const { return *loaded_; }

 private:
  const ShapeOnlyFile file_;
  mutable const SyntheticWeights* loaded_ = nullptr;
};

}  // namespace baton
