// The results of jobs as lines: Baton's own form, and that of OpenAI's batches.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/jobs.h"

namespace baton {

// One choice as a JSON object. Without the newline.
std::string ResultLine(const JobLabel& label, const JobResult& result);
// A job that failed, as a JSON object in the form that the label names. Without the newline.
std::string ErrorLine(const JobLabel& label, const absl::Status& status);

// All choices of a job of a file, without the last newline. Of a batch: one JSON object, whatever
// `json` says, which carries `unix_seconds` as its time. Else a line for each choice: an object, or
// "[id] text".
std::string JobResultText(const Job& job, const std::vector<JobResult>& results, bool json,
                          int64_t unix_seconds);

// How text output names a choice: "choice 0 (stop)".
std::string ChoiceTitle(const JobResult& result);

}  // namespace baton
