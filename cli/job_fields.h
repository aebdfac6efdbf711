// Reads the fields of a job, and describes them for the help.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "cli/jobs.h"
#include "cli/json_line.h"

namespace baton {

// Reads the fields of `object` at `place` into `job` and checks them. REQUIRES: `job` has the
// defaults of its fields, and its label. The label's form decides which fields are allowed.
absl::Status ReadJobFields(const JsonPlace& place, const nlohmann::json& object, Job& job);

// Reads "id" or "custom_id".
absl::Status ReadJobId(const JsonPlace& place, const nlohmann::json& value, JobLabel& label);

// Returns the format of job lines and of their results, for --help.
std::string JobFormatHelp();

}  // namespace baton
