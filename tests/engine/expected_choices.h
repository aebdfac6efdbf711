// The tokens that every choice of a request must have on a WorkerBench, for tests. They are
// computed without KV, from the fake runner's logits for the hash of all tokens so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "engine/handoff_manifest.h"
#include "engine/request.h"
#include "model/sampler.h"
#include "tests/engine/worker_bench.h"

namespace baton {

class ExpectedChoices {
 public:
  // `bench` must outlive this.
  explicit ExpectedChoices(WorkerBench& bench) : bench_(bench) {}

  // First tokens of a choice.
  struct Tokens {
    std::vector<DrawnToken> drawn;
    uint64_t logits_hash = 0;

    std::vector<TokenId> ids() const {
      std::vector<TokenId> ids;
      for (const DrawnToken& token : drawn) ids.push_back(token.token);
      return ids;
    }
  };
  // Returns the first `count` tokens of a choice.
  Tokens Draw(const GenerateRequest& request, int32_t choice, size_t count) {
    TokenSource source(request.sampling, request.prompt, bench_.tokenizer->end_of_generation(),
                       /*hash_logits=*/true, choice);
    uint64_t chain = 0;
    for (const TokenId token : request.prompt) chain = ChainPool::Chain(chain, token);
    Tokens tokens;
    while (tokens.drawn.size() < count) {
      const auto length = static_cast<int32_t>(request.prompt.size() + tokens.drawn.size());
      tokens.drawn.push_back(*source.Draw(bench_.runner.Row(chain, length), length, sampler_));
      source.Accept(tokens.drawn.back());
      chain = ChainPool::Chain(chain, tokens.drawn.back().token);
    }
    tokens.logits_hash = source.logits_hash();
    return tokens;
  }

  // Returns the tokens whose KV a hand-off to the request carries.
  static std::vector<TokenId> HandedOver(const GenerateRequest& request) {
    std::vector<TokenId> tokens = request.prompt;
    if (request.n == 1 && !request.generated.empty()) {
      const auto& generated = request.generated[0].tokens;
      tokens.insert(tokens.end(), generated.begin(), generated.end());
    }
    return tokens;
  }
  // Returns the manifest of that hand-off. It has the next token of each choice.
  std::string Manifest(const GenerateRequest& request) {
    HandoffManifest manifest;
    const size_t before = HandedOver(request).size() - request.prompt.size();
    for (int32_t i = 0; i < request.n; ++i) {
      manifest.drawn.push_back(Draw(request, i, before + 1).drawn.back());
    }
    return EncodeManifest(manifest);
  }

 private:
  WorkerBench& bench_;
  Sampler sampler_{{kEndToken}};
};

}  // namespace baton
