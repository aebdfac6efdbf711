#include "tests/sim/sim_model.h"

#include <algorithm>
#include <memory>

#include "common/check.h"
#include "engine/generation.h"
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

namespace {

// Computes the fold after the last layer, token by token.
class LiteralModel {
 public:
  explicit LiteralModel(const SimModel& model) : model_(model) {}

  uint64_t Append(TokenId token) {
    uint64_t hidden = SimEmbedding(token, length_++);
    for (int32_t layer = 0; layer < kSimLayers; ++layer) {
      std::vector<SimRows>& rows = rows_[layer];
      rows.push_back(SimRowsOf(layer, hidden));
      const int32_t window = model_.WindowOf(layer);
      const int32_t begin = window == 0 ? 0 : std::max(0, length_ - window);
      hidden = 0;
      for (int32_t slot = begin; slot < length_; ++slot) hidden = SimFold(hidden, rows[slot]);
    }
    return hidden;
  }

 private:
  const SimModel model_;
  int32_t length_ = 0;
  std::array<std::vector<SimRows>, kSimLayers> rows_;
};

}  // namespace

SimAnswer LiteralAnswer(const SimModel& which, std::span<const TokenId> prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice) {
  const auto prompt_tokens = static_cast<int32_t>(prompt.size());
  const int32_t most =
      std::min(sampling.max_tokens.value_or(context_length), context_length - prompt_tokens);
  LiteralModel model(which);
  uint64_t hidden = 0;
  for (const TokenId token : prompt) hidden = model.Append(token);
  Sampler sampler({kSimEndToken});
  TokenSource source(sampling, prompt, SimTokenizer().end_of_generation(),
                     /*hash_logits=*/true, choice);
  SimAnswer answer;
  std::array<float, kSimVocabulary> logits;
  while (static_cast<int32_t>(answer.tokens.size()) < most) {
    SimLogits(hidden, logits);
    const int32_t position = prompt_tokens + static_cast<int32_t>(answer.tokens.size());
    const absl::StatusOr<DrawnToken> drawn = source.Draw(logits, position, sampler);
    CHECK(drawn.ok()) << drawn.status();
    source.Accept(*drawn);
    answer.tokens.push_back(drawn->token);
    if (drawn->token == kSimEndToken) {
      answer.reason = FinishReason::kStop;
      break;
    }
    answer.text += static_cast<char>('0' + drawn->token);
    hidden = model.Append(drawn->token);
  }
  answer.logits_hash = source.logits_hash();
  return answer;
}

}  // namespace baton
