// Notes after an answer in text form, for standard error: why it ended, the log-probabilities of
// its tokens, and one ledger for all its choices.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/jobs.h"
#include "common/token_id.h"

namespace baton {

// Returns the tokens with log-probabilities and those at their places, each once.
std::vector<TokenId> TokensOfLogprobs(const std::vector<JobResult>& results);
// As TokensOfLogprobs, with the tokens whose pieces StopNote needs. Often none.
std::vector<TokenId> TokensToShow(const Job& job, const std::vector<JobResult>& results);

// Returns why the answer ended, such as "(stopped: 128 tokens, --max-tokens)". For a job of
// a file, it also names the field. Empty if the answer reached its natural end. Needs the pieces to
// find a stop string. One line, without a newline.
std::string StopNote(const Job& job, const JobResult& result, const TokenPieces& pieces);

// Returns why an answer stopped in the middle, such as "(stopped: the deadline passed)". Empty for
// errors other than a deadline and a cancellation.
std::string StopNote(const absl::Status& error);

// Returns a table with one row for each token: its quoted and escaped text, its log-probability,
// and the most likely tokens at its place. A token without a piece is shown by its id. Empty if the
// job did not ask for log-probabilities.
std::string LogprobsTable(const JobResult& result, const TokenPieces& pieces);

// Returns one ledger for a request with several choices. The prompt's figures are the same for all
// choices. The total is the longest one, and the tokens are those of all choices.
JobResult WithOneLedger(const std::vector<JobResult>& results);

}  // namespace baton
