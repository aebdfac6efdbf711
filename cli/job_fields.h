// The fields of a job: how each is read, and the help that describes them.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "cli/jobs.h"
#include "cli/json_line.h"

namespace baton {

// Reads the fields of `object`, which stands at `place`, into `job`, and checks them. `job` has its
// label, whose form decides which fields there are, and the defaults of the other fields.
absl::Status ReadJobFields(const JsonPlace& place, const nlohmann::json& object, Job& job);

// Reads "id" or "custom_id".
absl::Status ReadJobId(const JsonPlace& place, const nlohmann::json& value, JobLabel& label);

// The format of job lines and of their results, as --help shows it.
std::string JobFormatHelp();

}  // namespace baton
