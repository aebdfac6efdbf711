// Requests to an engine, their results, and the sinks through which results leave the engine
// thread. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/cache_owners.h"
#include "common/choices.h"
#include "common/prompt_chunks.h"
#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "common/token_logprob.h"
#include "kvtransfer/transport.h"
#include "model/sampler.h"

namespace baton {

// Number of a request inside one engine; never reused.
using RequestHandle = uint64_t;

// A request and its sequence have the same number.
inline SequenceId SequenceOf(RequestHandle handle) { return SequenceId(handle); }
inline RequestHandle HandleOf(SequenceId id) { return id.value(); }

// Part of an answer that a lost worker had generated. Another worker continues after these tokens
// as if it had drawn them itself. Penalties, random numbers, stop strings and held-back text are
// the same.
struct GeneratedPart {
  std::vector<TokenId> tokens;  // all tokens that the client has
  uint64_t logits_hash = 0;     // as in FinishInfo, up to the last of them
  bool finished = false;        // the client also has its end: do not continue it
};

struct GenerateRequest {
  std::string request_id;  // given by the caller, for logs and `inspect`
  std::vector<TokenId> prompt;
  std::optional<ChunkedPrompt> chunked;  // if set, `prompt` is FlatTokens(*chunked)
  int32_t n = 1;                         // choices, 1–kMaxChoices
  std::vector<GeneratedPart> generated;  // empty, or one for each choice
  SamplingParams sampling;               // validated by the engine; seed set
  CacheNamespace cache_namespace{0};
  CacheOwner cache_owner = {};  // of the namespace
  int32_t priority = 0;         // −100–100
  bool remote_prefill = false;  // issue a ticket and wait for a peer's KV
  bool queues_for_kv = false;   // with remote_prefill: without room, wait in the queue for it
  int64_t timeout_ms = 0;       // 0: none
};

struct TokenOutput {
  int32_t choice = 0;
  std::vector<TokenId> token_ids;
  std::string text;                   // whole characters only
  std::vector<TokenDetail> logprobs;  // one per token if requested
  uint64_t logits_hash = 0;           // as in FinishInfo, up to the last of these tokens
};

enum class FinishReason : uint8_t { kStop, kLength };
const char* FinishReasonName(FinishReason reason);  // "stop", "length"

// What a chunked prompt cost. All figures are 0 for other prompts.
struct ChunkLedger {
  int32_t chunks = 0;
  int32_t hits = 0;  // chunks whose KV was cached
  int32_t repaired_tokens = 0;
  int64_t pulled_bytes = 0;  // KV of chunks that came from other workers
  int64_t lookup_us = 0;     // finding the chunks
  int64_t compute_us = 0;    // first missing part scheduled to last missing part committed
  int64_t place_us = 0;      // making the layout of the whole prompt
  int64_t repair_us = 0;
  int64_t wake_us = 0;  // copying sleeping chunks back
};

// Where a request's time went on this worker, and how much data moved.
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
  // prefill_cached_tokens: tokens found in the prefill worker's cache, if prefilled_elsewhere.
  // Prefill time and computed_tokens are then also that worker's. Queue time is the sum of the wait
  // for room here and of that worker's.
  int32_t prefill_cached_tokens = 0;
  bool prefilled_elsewhere = false;
  ChunkLedger chunk = {};

  int32_t CachedWherePrefilled() const {
    return prefilled_elsewhere ? prefill_cached_tokens : cached_tokens;
  }
};

struct FinishInfo {
  int32_t choice = 0;
  bool last = true;  // no other choice continues: the request has ended
  FinishReason reason = FinishReason::kStop;
  std::string text;  // text that was held back
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  // Chained over all sampled rows of logits; 0 if the engine does not hash them.
  uint64_t logits_hash = 0;
  RequestLedger ledger;
};

// Receives one request's answers. Called on the engine thread, in order; must not block. OnFinish
// ends a choice, and the last OnFinish ends the request. OnError ends the request with all choices
// that are left.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // The first call if the request has `remote_prefill`.
  virtual void OnTicket(const TransferTicket& ticket) = 0;
  virtual void OnTokens(TokenOutput output) = 0;
  virtual void OnFinish(FinishInfo info) = 0;
  virtual void OnError(absl::Status status) = 0;
};

struct PrefillRequest {
  std::string request_id;
  std::vector<TokenId> prompt;
  std::optional<ChunkedPrompt> chunked = {};  // as in GenerateRequest
  int32_t n = 1;                              // choices: number of first tokens to draw
  GeneratedPart generated;  // computed after the prompt, before the first token; needs n = 1
  SamplingParams sampling;
  CacheNamespace cache_namespace{0};
  CacheOwner cache_owner = {};  // of the namespace
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
  int64_t kv_exposed_us = 0;  // part of the transfer after the prompt was computed
  ChunkLedger chunk = {};
};

// Asks for a prompt's prefix from another worker's cache (prefix_pull.h).
struct PullRequest {
  std::vector<TokenId> tokens;  // a part-full last block is ignored
  CacheNamespace cache_namespace{0};
  CacheOwner cache_owner = {};  // of the namespace
  int64_t timeout_ms = 0;       // 0: the limit for transfers
  int32_t priority = 0;         // of the request that needs the prefix
  // If set, the chunks of this prompt are pulled instead of a prefix, and `tokens` is unused. A
  // chunk depends only on its scope and the system part, so the prompt needs to have only the
  // chunks to pull. Its question may be empty. The system part itself is not pulled.
  std::optional<ChunkedPrompt> chunked = {};
};

struct PullResult {
  int32_t tokens = 0;         // tokens of the prefix, or of the chunks, that are cached here now
  int32_t pulled_tokens = 0;  // of these, tokens that this pull brought
  int64_t kv_bytes = 0;
  int64_t kv_transfer_us = 0;
};

// Receives the result of a pull. Called on the engine thread; must not block.
class PullSink {
 public:
  virtual ~PullSink() = default;
  // Gives the ticket that the source needs to send. Called at most once, before OnDone. Not called
  // if nothing is missing or if the prefix is already being transferred.
  virtual void OnTicket(const TransferTicket& ticket) = 0;
  // Called exactly once, at the end. On error, nothing was pulled.
  virtual void OnDone(absl::StatusOr<PullResult> result) = 0;
};

// Asks the source of a pull to send.
struct SendPrefixRequest {
  std::vector<TokenId> tokens;  // as in the PullRequest
  CacheNamespace cache_namespace{0};
  TransferTicket ticket;                      // the receiver's
  int32_t priority = 0;                       // as in the PullRequest
  std::optional<ChunkedPrompt> chunked = {};  // as in the PullRequest
};

// Receives the result of a prefill. Called exactly once, on the engine thread, when the receiver
// has everything or the prefill has failed; must not block. Aborted: the receiver is gone or
// unreachable, and this worker is healthy.
class PrefillSink {
 public:
  virtual ~PrefillSink() = default;
  virtual void OnDone(absl::StatusOr<PrefillResult> result) = 0;
};

}  // namespace baton
