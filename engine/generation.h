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

// The samples of one answer, in order: draws a token from a row of logits and remembers what
// penalties need.
class TokenSource {
 public:
  TokenSource(const SamplingParams& params, std::span<const TokenId> prompt, bool hash_logits,
              int32_t choice = 0);

  // `position`: the slot that the new token will take. The draw is keyed by (seed, position), so it
  // does not matter who draws.
  absl::StatusOr<DrawnToken> Draw(std::span<const float> logits, int32_t position,
                                  Sampler& sampler);
  // Takes over a token that was drawn, here or by a peer.
  void Accept(const DrawnToken& drawn);
  // Goes on behind what was drawn elsewhere. REQUIRES: nothing drawn yet.
  void Resume(const GeneratedPart& generated);

  uint64_t logits_hash() const { return logits_hash_; }

 private:
  SamplingParams params_;
  SamplerState state_;
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
