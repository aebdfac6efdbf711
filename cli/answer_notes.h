// What stands below an answer for people, on standard error: why it ended, its tokens'
// log-probabilities, and one ledger for all its choices.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cli/jobs.h"
#include "common/strong_int.h"

namespace baton {

// The bytes of tokens, by id.
using TokenPieces = absl::flat_hash_map<TokenId, std::string>;

// The tokens whose pieces StopNote and LogprobsTable need, each once. Often none.
std::vector<TokenId> TokensToShow(const Job& job, const std::vector<JobResult>& results);

// Why the answer ended, "(stopped: 128 tokens, --max-tokens)"; empty where it reached its own end.
// The pieces tell a stop string. One line, without the line break.
std::string StopNote(const Job& job, const JobResult& result, const TokenPieces& pieces);

// Why an answer that had begun broke off: "(stopped: the deadline passed)". Empty for other errors
// than a deadline and a cancellation.
std::string StopNote(const absl::Status& error);

// Token by token: its text, quoted and escaped, its log-probability, and the most likely ones
// there. A token without a piece is shown by its id. Several lines; empty where no log-probability
// was asked for.
std::string LogprobsTable(const JobResult& result, const TokenPieces& pieces);

// The ledger of a request with several choices: what concerns the prompt is the same for each. The
// total is the longest one; tokens are counted together.
JobResult WithOneLedger(const std::vector<JobResult>& results);

}  // namespace baton
