// Results of jobs as lines, in Baton's own form or that of OpenAI's batches.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/jobs.h"

namespace baton {

// Returns one choice as a JSON object, without a newline. `pieces`: texts of tokens with
// log-probabilities. Without its piece, such a token has no text here.
std::string ResultLine(const JobLabel& label, const JobResult& result,
                       const TokenPieces& pieces = {});
// Returns a failed job as a JSON object in the label's form, without a newline.
std::string ErrorLine(const JobLabel& label, const absl::Status& status);

// Returns all choices of a job of a file, without the last newline. For a batch: one JSON object
// with the time `unix_seconds`; `json` has no effect. Otherwise a line for each choice: a JSON
// object with `json`, else "[id] text". `pieces` as above; a batch calls a token without its piece
// "token_id:N".
std::string JobResultText(const Job& job, const std::vector<JobResult>& results, bool json,
                          int64_t unix_seconds, const TokenPieces& pieces = {});

// Returns the title of a choice in text output, such as "choice 0 (stop)".
std::string ChoiceTitle(const JobResult& result);

}  // namespace baton
