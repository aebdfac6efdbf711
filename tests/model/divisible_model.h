// A small model whose 12 KV heads can be divided in many ways, and the ranks that compute it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/create_device.h"
#include "kernels/half.h"
#include "model/architectures.h"
#include "model/tensor_parallel_weights.h"
#include "tests/model/model_files.h"

namespace baton {

// Random matrix of a type. F32 and Q8_0 are supported.
inline std::string RandomMatrix(GgmlType type, int64_t values, float gain, std::mt19937& random) {
  std::normal_distribution<float> value(0.0f, gain);
  std::string bytes;
  if (type == GgmlType::kF32) {
    for (int64_t i = 0; i < values; ++i) bytes += GgufBuilder::Raw(value(random));
    return bytes;
  }
  for (int64_t i = 0; i < values / 32; ++i) {
    bytes += GgufBuilder::Raw(F32ToF16(gain / 40));
    for (int j = 0; j < 32; ++j) {
      bytes += static_cast<char>(static_cast<int>(random() % 255) - 127);
    }
  }
  return bytes;
}

// Bytes of a model file with 24 query heads, 12 KV heads and 2 layers. Neither the feed-forward
// network nor the vocabulary divides evenly by 3.
inline std::string DivisibleModelBytes(GgmlType type) {
  constexpr uint32_t kHidden = 192, kHeads = 24, kKvHeads = 12, kHeadDim = 8, kFfn = 160;
  constexpr uint32_t kVocabulary = 320;
  const auto tiny = *GgufFile::Open(TinyModelPath("f32"));
  std::set<std::string> replaced = {"llama.embedding_length", "llama.feed_forward_length",
                                    "llama.attention.head_count", "llama.attention.head_count_kv",
                                    "llama.rope.dimension_count"};
  for (const GgufTensor& tensor : tiny->tensors()) replaced.insert(std::string(tensor.name));
  GgufBuilder model = CopyModel(*tiny, replaced);
  model.Scalar("llama.embedding_length", GgufValueType::kUint32, kHidden)
      .Scalar("llama.feed_forward_length", GgufValueType::kUint32, kFfn)
      .Scalar("llama.attention.head_count", GgufValueType::kUint32, kHeads)
      .Scalar("llama.attention.head_count_kv", GgufValueType::kUint32, kKvHeads)
      .Scalar("llama.rope.dimension_count", GgufValueType::kUint32, kHeadDim);
  std::mt19937 random(23);
  const auto matrix = [&](const std::string& name, uint32_t rows, uint32_t cols) {
    const float gain = 1.5f / std::sqrt(static_cast<float>(cols));
    model.Tensor(name, {cols, rows}, type, RandomMatrix(type, int64_t{rows} * cols, gain, random));
  };
  const auto norm = [&](const std::string& name) {
    model.Tensor(name, {kHidden}, GgmlType::kF32,
                 RandomMatrix(GgmlType::kF32, kHidden, 1.0f, random));
  };
  matrix("token_embd.weight", kVocabulary, kHidden);
  norm("output_norm.weight");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    norm(prefix + "attn_norm.weight");
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "attn_q.weight", kHeads * kHeadDim, kHidden);
    matrix(prefix + "attn_k.weight", kKvHeads * kHeadDim, kHidden);
    matrix(prefix + "attn_v.weight", kKvHeads * kHeadDim, kHidden);
    matrix(prefix + "attn_output.weight", kHidden, kHeads * kHeadDim);
    matrix(prefix + "ffn_gate.weight", kFfn, kHidden);
    matrix(prefix + "ffn_up.weight", kFfn, kHidden);
    matrix(prefix + "ffn_down.weight", kHidden, kFfn);
  }
  return model.Build();
}

// Writes the model to a file for the test's program. Returns its path.
inline std::string DivisibleModelFile(GgmlType type) {
  const std::string path = testing::TempDir() + "/divisible-" + std::to_string(getpid()) + "-" +
                           std::to_string(static_cast<int>(type)) + ".gguf";
  const std::string bytes = DivisibleModelBytes(type);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  return path;
}

// The ranks of a tensor-parallel group with the weights of a model.
struct TinyRanks {
  TinyRanks(const GgufFile& file, int32_t degree, int threads = 1) {
    DeviceGroup group = *CreateDeviceGroup({.threads = threads}, degree);
    lead = std::move(group.devices.front());
    group.devices.erase(group.devices.begin());
    weights = *LoadTensorParallel(**FindArchitecture(file), file, *lead, std::move(group));
  }

  std::unique_ptr<Device> lead;
  std::unique_ptr<ModelWeights> weights;
};

}  // namespace baton
