// The events of an answer, independent of the connection that carries it. rpc/answer_wire.h makes
// them from protobuf, openai/answer_writer.h writes them.
//
// Order: one AnswerStarted; AnswerTokens as tokens are generated; one AnswerFinished for each
// choice.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/token_id.h"
#include "common/token_logprob.h"

namespace baton {

struct AnswerStarted {
  std::string request_id = {};
  int32_t prompt_tokens = 0;
  uint64_t seed = 0;                           // of choice 0
  std::vector<TokenId> prompt_token_ids = {};  // only with ClientRequest::return_prompt_token_ids
};

// New tokens of one choice, and the text that they complete. The text ends at a character boundary.
struct AnswerTokens {
  int32_t choice = 0;
  std::vector<TokenId> token_ids = {};
  std::string text = {};
  std::vector<TokenDetail> logprobs = {};  // one for each token, if asked for
};

// Figures by name, in the order of the request's path. Times end in "_us". The names live forever.
using LedgerFigures = std::vector<std::pair<const char*, int64_t>>;

// The end of one choice.
struct AnswerFinished {
  int32_t choice = 0;
  std::string text = {};           // held back until now
  std::string finish_reason = {};  // "stop", "length"
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  uint64_t logits_hash = 0;  // 0: not asked for
  LedgerFigures ledger = {};
  std::string prefill_worker = {};  // empty: the decode worker, or this process
  std::string pull_source = {};     // had a part of the prompt cached; empty: nothing was pulled
  std::string decode_worker = {};
};

using AnswerEvent = std::variant<AnswerStarted, AnswerTokens, AnswerFinished>;

}  // namespace baton
