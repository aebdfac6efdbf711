// Hyper-parameters of a Llama model, read from a GGUF file's metadata and checked.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/kv_cache_spec.h"
#include "kernels/communicator.h"
#include "model/gguf/gguf_reader.h"
#include "model/step_buffers.h"

namespace baton {

struct LlamaConfig {
  std::string name;  // general.name, or empty
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t query_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t feed_forward = 0;
  int32_t vocabulary = 0;
  int32_t context_length = 0;       // tokens
  int32_t window = 0;               // slots that window layers see; 0: no layer has a window
  std::vector<bool> window_layers;  // [layers] if there is a window; at least one is false
  float norm_epsilon = 0;
  std::vector<double> rope_frequencies;  // [rotating pairs], radians per position
  double rope_attention_factor = 1;      // of sines and cosines
  std::string rope;                      // canonical text of the RoPE parameters, for fingerprints

  DecoderConfig Decoder() const;
  // Returns one group, or two: the layers with full attention and the window layers.
  KvCacheSpec Kv() const;

  // InvalidArgument unless `degree` ranks can divide the model: it must divide the KV heads.
  absl::Status CheckTensorParallel(int32_t degree) const;
  // Returns the sizes that one rank computes: its heads and its part of the feed-forward network.
  // Rank 0 has the whole vocabulary, because it draws the tokens; the others have their part.
  // REQUIRES: CheckTensorParallel(rank.degree) is OK.
  LlamaConfig OfRank(TensorRank rank) const;
};

// InvalidArgument, NotFound and Unimplemented name the key or tensor, its value and the limit.
// Refused are:
// - a mixture of experts;
// - KV heads that do not divide the query heads;
// - a dimension out of range;
// - a RoPE scaling other than plain, linear, Llama-3, NTK and YaRN with fixed frequencies; M-RoPE;
// - a window in all layers.
absl::StatusOr<LlamaConfig> ReadLlamaConfig(const GgufFile& file);

}  // namespace baton
