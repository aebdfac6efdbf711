// What an engine is asked and what it answers. Plain data; the sinks are how answers leave the
// engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "common/choices.h"
#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "kvtransfer/transport.h"
#include "model/sampler.h"

namespace baton {

// Names a request inside one engine; never reused.
using RequestHandle = uint64_t;

// A request's sequence has its number.
inline SequenceId SequenceOf(RequestHandle handle) { return SequenceId(handle); }
inline RequestHandle HandleOf(SequenceId id) { return id.value(); }

// What an answer had when the worker that was generating it was lost. Another one goes on behind
// these tokens as if it had drawn them itself: same penalties, same random numbers, same stop
// strings, same text held back.
struct GeneratedPart {
  std::vector<TokenId> tokens;  // all that the client has
  uint64_t logits_hash = 0;     // see FinishInfo, up to the last of them
  bool finished = false;        // the client has its end too: nobody is to go on with it
};

struct GenerateRequest {
  std::string request_id;  // the caller's name, for logs and `inspect`
  std::vector<TokenId> prompt;
  int32_t n = 1;                         // choices, 1–kMaxChoices
  std::vector<GeneratedPart> generated;  // empty, or one for each choice
  SamplingParams sampling;               // validated by the engine; seed set
  CacheNamespace cache_namespace{0};
  int32_t priority = 0;         // −100–100
  bool remote_prefill = false;  // hand out a ticket and wait for a peer's KV
  int64_t timeout_ms = 0;       // 0: none
};

struct TokenDetail {
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct TokenOutput {
  int32_t choice = 0;
  std::vector<TokenId> token_ids;
  std::string text;                   // whole characters only
  std::vector<TokenDetail> logprobs;  // one a token when asked for
  uint64_t logits_hash = 0;           // see FinishInfo, up to the last of these tokens
};

enum class FinishReason : uint8_t { kStop, kLength };
const char* FinishReasonName(FinishReason reason);  // "stop", "length"

// Where a request's time went at this worker, and what moved.
struct RequestLedger {
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int32_t prefill_chunks = 0;
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
  int64_t admit_us = 0;
  int64_t first_token_us = 0;  // from arrival at this engine
  int64_t inter_token_us = 0;  // mean
  int64_t total_us = 0;
  int32_t cached_tokens = 0;    // found in this worker's prefix cache
  int32_t computed_tokens = 0;  // prompt tokens computed here, once for all choices
  int32_t preemptions = 0;
  // The prefill worker's cache, when the prompt was computed there; queue, prefill and
  // computed_tokens are then that worker's.
  int32_t prefill_cached_tokens = 0;
  bool prefilled_elsewhere = false;

  int32_t CachedWherePrefilled() const {
    return prefilled_elsewhere ? prefill_cached_tokens : cached_tokens;
  }
};

struct FinishInfo {
  int32_t choice = 0;
  bool last = true;  // no other choice goes on: the request has ended
  FinishReason reason = FinishReason::kStop;
  std::string text;  // text held back until now
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  uint64_t logits_hash =
      0;  // chained over every sampled row of logits, when the engine hashes them; else 0
  RequestLedger ledger;
};

// Receives one request's answers. Called on the engine thread, in order; must not block. OnFinish
// ends a choice, and the last one the request; or OnError ends it, with all choices that go on.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // First call when the request asked for remote prefill.
  virtual void OnTicket(const TransferTicket& ticket) = 0;
  virtual void OnTokens(TokenOutput output) = 0;
  virtual void OnFinish(FinishInfo info) = 0;
  virtual void OnError(absl::Status status) = 0;
};

struct PrefillRequest {
  std::string request_id;
  std::vector<TokenId> prompt;
  int32_t n = 1;            // choices: so many first tokens are drawn
  GeneratedPart generated;  // computed behind the prompt; the first token comes after them. n is 1
  SamplingParams sampling;
  CacheNamespace cache_namespace{0};
  int32_t priority = 0;
  TransferTicket ticket;
};

struct PrefillResult {
  int32_t cached_tokens = 0;
  int32_t computed_tokens = 0;
  int32_t chunks = 0;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
  int64_t kv_exposed_us = 0;  // of the transfer, after the prompt was computed
};

// A prompt's prefix that is to come into this worker's cache from another's (prefix_pull.h).
struct PullRequest {
  std::vector<TokenId> tokens;  // a part-full last block of them is left out
  CacheNamespace cache_namespace{0};
  int64_t timeout_ms = 0;  // 0: as long as any transfer may take
  int32_t priority = 0;    // of the request for which it comes
};

struct PullResult {
  int32_t tokens = 0;         // of the prefix, cached here now
  int32_t pulled_tokens = 0;  // of them, came with this pull
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
};

// Called on the engine thread; must not block.
class PullSink {
 public:
  virtual ~PullSink() = default;
  // What the source needs to send; at most once, before OnDone. None when nothing is missing, or
  // when the prefix is on its way already.
  virtual void OnTicket(const TransferTicket& ticket) = 0;
  // Once, at the end. An error: nothing came.
  virtual void OnDone(absl::StatusOr<PullResult> result) = 0;
};

// What is asked of the source of a pull.
struct SendPrefixRequest {
  std::vector<TokenId> tokens;  // as in the PullRequest
  CacheNamespace cache_namespace{0};
  TransferTicket ticket;  // the receiver's
  int32_t priority = 0;   // as in the PullRequest
};

// Called once, on the engine thread, when the receiver has everything or the prefill failed; must
// not block. Aborted: the receiver is gone, or could not be reached; this worker is well.
class PrefillSink {
 public:
  virtual ~PrefillSink() = default;
  virtual void OnDone(absl::StatusOr<PrefillResult> result) = 0;
};

}  // namespace baton
