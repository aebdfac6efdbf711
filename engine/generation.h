// Turns the logits of one answer into text: sampling, stop conditions, detokenising, the ledger.
//
// It runs in the worker, so that a request ends at the same token on every worker. Pure.
//
// Thread safety: engine thread only.
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

// Draws the tokens of one answer, in order. It tells the step how to draw a token on the device, or
// draws the token on the host. Both ways give the same token. It also keeps the token counts that
// penalties need.
class TokenSource {
 public:
  // `end_tokens`: the model's end-of-generation tokens, which min_tokens suppresses.
  TokenSource(const SamplingParams& params, std::span<const TokenId> prompt,
              std::span<const TokenId> end_tokens, bool hash_logits, int32_t choice = 0);

  // True if the next token depends on all tokens before it: penalties count them. Such a token is
  // drawn on the host.
  bool draws_on_host() const { return params_.has_penalties(); }
  // True if the host needs the row of logits in addition to the token.
  bool needs_logits() const {
    return draws_on_host() || hash_logits_ || params_.logprobs.has_value();
  }
  // Tells a step how to draw the next token after `pending` tokens that are not accepted yet.
  // `position`: slot that the new token will take. The draw is keyed by (seed, position), so every
  // worker draws the same token. The result refers to this object. REQUIRES: !draws_on_host().
  TokenDraw NextDraw(int32_t position, int32_t pending) const;
  // Adds log probabilities and the logits hash to a token that a step drew as NextDraw says.
  // `logits` may be empty if !needs_logits().
  absl::StatusOr<DrawnToken> Describe(TokenId token, std::span<const float> logits,
                                      Sampler& sampler) const;
  // Draws the next token on the host. `position` as in NextDraw.
  absl::StatusOr<DrawnToken> Draw(std::span<const float> logits, int32_t position,
                                  Sampler& sampler) const;
  // Records the drawn token, from this worker or a peer, as the next token of the answer.
  void Accept(const DrawnToken& drawn);
  // Continues after tokens that another worker drew. REQUIRES: nothing drawn yet.
  void Resume(const GeneratedPart& generated);

  uint64_t logits_hash() const { return logits_hash_; }

 private:
  uint64_t HashBehind(std::span<const float> logits) const;

  SamplingParams params_;
  SamplerState state_;
  std::vector<LogitAddition> additions_;  // logit_bias, then the tokens that min_tokens suppresses
  bool hash_logits_;
  uint64_t logits_hash_ = 0;
};

class Generation {
 public:
  // `length_limit`: most tokens of prompt and answer together. `tokenizer` must outlive this.
  Generation(const GenerateRequest& request, int32_t length_limit, const Tokenizer& tokenizer,
             bool hash_logits, int64_t arrival_us, int32_t choice = 0);

  struct Emission {
    TokenOutput output;
    std::optional<FinishReason> finished;
  };

  TokenSource& source() { return source_; }
  // Continues after tokens that another worker generated. Returns the finish reason if the answer
  // ends with the last of them. InvalidArgument: the answer ends before the last one. REQUIRES: no
  // token yet.
  absl::StatusOr<std::optional<FinishReason>> Resume(const GeneratedPart& generated,
                                                     int64_t now_us);
  // Counts the token, turns it into text, and decides whether the answer ends with it.
  Emission Accept(const DrawnToken& drawn, int64_t now_us);
  // Ends the answer: flushes held-back text and closes the ledger.
  FinishInfo Finish(FinishReason reason, int64_t now_us);

  int32_t completion_tokens() const { return completion_tokens_; }
  RequestLedger& ledger() { return ledger_; }

 private:
  bool EndsAt(TokenId token) const;
  // Counts the token and sets `text` to the text that it completes.
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
