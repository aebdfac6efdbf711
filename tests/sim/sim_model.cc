#include "tests/sim/sim_model.h"

#include <memory>

#include "tests/sim/sim_random.h"
#include "text/byte_alphabet.h"

namespace baton {

uint64_t SimEmbedding(TokenId token, int32_t position) {
  return MixBits((uint64_t{static_cast<uint32_t>(position)} << 32 | static_cast<uint32_t>(token)) +
                 1);
}

SimRows SimRowsOf(int32_t layer, uint64_t hidden) {
  const uint64_t seed = hidden + static_cast<uint64_t>(layer) * 0x632BE59BD9B4E019ull;
  return {.key = {MixBits(seed + 1), MixBits(seed + 2)},
          .value = {MixBits(seed + 3), MixBits(seed + 4)}};
}

uint64_t SimFold(uint64_t fold, const SimRows& rows) {
  for (const uint64_t word : {rows.key[0], rows.key[1], rows.value[0], rows.value[1]}) {
    fold = (fold ^ word) * 0x9E3779B97F4A7C15ull;
    fold ^= fold >> 32;
  }
  return fold;
}

float SimChange(const SimRows& stored, const SimRows& computed) {
  const uint64_t differs = SimFold(0, stored) ^ SimFold(0, computed);
  return differs == 0 ? 0.0f : static_cast<float>(1 + MixBits(differs) % 8);
}

void SimSegments::Add(int32_t query, uint64_t fold) {
  if (++count_ == 1) first_ = fold;
  joined_ = MixBits(joined_ + MixBits(fold + static_cast<uint64_t>(query)) + 1);
}

void SimLogits(uint64_t fold, std::span<float> row) {
  for (size_t t = 0; t < row.size(); ++t) {
    row[t] = static_cast<float>(MixBits(fold + t) & 0xFFF) * (1.0f / 512);
  }
}

const Tokenizer& SimTokenizer() {
  static const std::unique_ptr<const Tokenizer> tokenizer = [] {
    TokenizerSpec spec;
    spec.model = "gpt2";
    spec.pre = "gpt-2";
    for (int i = 0; i < kSimEndToken; ++i) {
      spec.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>('0' + i)));
    }
    spec.tokens.push_back("<|end|>");
    spec.token_types.assign(kSimEndToken, 1);
    spec.token_types.push_back(3);
    spec.eos = kSimEndToken;
    return *Tokenizer::Create(spec);
  }();
  return *tokenizer;
}

KvCacheSpec SimModel::Spec() const {
  const KvGroupSpec all{
      .layers = kSimLayers, .kv_heads = 1, .head_dim = kSimHeadDim, .type = KvType::kF32};
  if (window == 0) return {.groups = {all}};
  KvCacheSpec spec{.groups = {all, all}};
  for (KvGroupSpec& group : spec.groups) group.layers = 1;
  spec.groups[0].model_layers = {1 - window_layer};
  spec.groups[1].model_layers = {window_layer};
  spec.groups[1].kind = KvGroupKind::kSlidingWindow;
  spec.groups[1].window = window;
  return spec;
}

}  // namespace baton
