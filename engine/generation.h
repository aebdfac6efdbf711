// One answer's way from logits to text: sampling, stop conditions, detokenising, the ledger.
//
// It lives in the worker, so that a request ends at the same token wherever it runs. Pure; belongs
// to the engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/handoff_manifest.h"
#include "engine/request.h"
#include "model/sampler.h"
#include "text/stop_matcher.h"
#include "text/streaming_detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// The samples of one answer, in order: says how the step draws a token, or draws it here, and
// remembers what penalties need. Both ways give the same token.
class TokenSource {
 public:
  // `end_tokens`: the model's own, held back by min_tokens.
  TokenSource(const SamplingParams& params, std::span<const TokenId> prompt,
              std::span<const TokenId> end_tokens, bool hash_logits, int32_t choice = 0);

  // The next token cannot be drawn before all tokens so far are known here: penalties count them.
  bool draws_on_host() const { return params_.has_penalties(); }
  // Logits are needed here, beside the token.
  bool needs_logits() const {
    return draws_on_host() || hash_logits_ || params_.logprobs.has_value();
  }
  // How a step draws the next token, behind `pending` ones that are not accepted yet. `position`:
  // the slot that the new token will take. The draw is keyed by (seed, position), so it does not
  // matter which worker draws. Valid as long as this. REQUIRES: !draws_on_host().
  TokenDraw NextDraw(int32_t position, int32_t pending) const;
  // What goes with a token that a step drew as NextDraw says. `logits`: empty if not needed.
  absl::StatusOr<DrawnToken> Describe(TokenId token, std::span<const float> logits,
                                      Sampler& sampler) const;
  // Draws here. `position` as in NextDraw.
  absl::StatusOr<DrawnToken> Draw(std::span<const float> logits, int32_t position,
                                  Sampler& sampler) const;
  // Takes over a token that was drawn, here or by a peer.
  void Accept(const DrawnToken& drawn);
  // Goes on behind what was drawn elsewhere. REQUIRES: nothing drawn yet.
  void Resume(const GeneratedPart& generated);

  uint64_t logits_hash() const { return logits_hash_; }

 private:
  uint64_t HashBehind(std::span<const float> logits) const;

  SamplingParams params_;
  SamplerState state_;
  std::vector<LogitAddition> additions_;  // logit_bias, then what min_tokens holds back
  bool hash_logits_;
  uint64_t logits_hash_ = 0;
};

class Generation {
 public:
  // `length_limit`: prompt and generated tokens may not exceed it. The tokenizer outlives this.
  Generation(const GenerateRequest& request, int32_t length_limit, const Tokenizer& tokenizer,
             bool hash_logits, int64_t arrival_us, int32_t choice = 0);

  struct Emission {
    TokenOutput output;
    std::optional<FinishReason> finished;
  };

  TokenSource& source() { return source_; }
  // Goes on behind what was generated elsewhere; says whether the answer ends with it.
  // InvalidArgument: it ends before. REQUIRES: no token yet.
  absl::StatusOr<std::optional<FinishReason>> Resume(const GeneratedPart& generated,
                                                     int64_t now_us);
  // Counts the token, turns it into text and decides whether the request ends with it.
  Emission Accept(const DrawnToken& drawn, int64_t now_us);
  // The end: flushes held-back text and closes the ledger.
  FinishInfo Finish(FinishReason reason, int64_t now_us);

  int32_t completion_tokens() const { return completion_tokens_; }
  RequestLedger& ledger() { return ledger_; }

 private:
  bool EndsAt(TokenId token) const;
  // Counts the token; its text goes to `text`.
  std::optional<FinishReason> Count(TokenId token, int64_t now_us, std::string& text);

  const Tokenizer& tokenizer_;
  SamplingParams params_;
  TokenSource source_;
  StreamingDetokenizer detokenizer_;
  StopMatcher stop_matcher_;
  int32_t choice_;
  int32_t prompt_tokens_;
  int32_t length_limit_;
  int32_t completion_tokens_ = 0;
  int64_t arrival_us_;
  int64_t first_token_us_ = 0;
  int64_t last_token_us_ = 0;
  RequestLedger ledger_;
};

}  // namespace baton
