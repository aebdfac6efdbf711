// Jobs as `baton run` and `baton generate` read them: one JSON object on each line.
//
// A line has Baton's own form or that of OpenAI's batches. JobFormatHelp (cli/job_format.h) names
// every field. Reading is strict: an unknown field, a wrong type or a value out of range is an
// error that names line, column and field. `null` is the same as absent. Data of a line beyond the
// limits below is never stored.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/request_bounds.h"
#include "common/token_id.h"
#include "common/token_logprob.h"
#include "requests/client_request.h"
#include "requests/json_text.h"

namespace baton {

inline constexpr size_t kMaxJobLineBytes = size_t{32} << 20;
inline constexpr size_t kMaxJobTokenIds = kMaxPromptTokenIds;  // in one array

// Form of a job's line and of its results.
enum class JobForm : uint8_t {
  kBaton,
  kChatBatch,        // OpenAI's batches, for /v1/chat/completions
  kCompletionBatch,  // the same, for /v1/completions
};

// Data of a job that its results repeat.
struct JobLabel {
  std::string id;             // for a batch, its custom_id
  bool id_is_number = false;  // `id` has the digits of a JSON number
  JobForm form = JobForm::kBaton;
  int64_t line = 0;  // the line's number, from 1 on
};

struct Job : JobLabel, ClientRequest {
  std::string model;  // only for batches: copied into the result, not checked
};

// Parses a job. Sampling, `n`, `priority`, and the options and separator of chunks have the values
// of `defaults` if the line does not name them. A job without an id gets `line_number` as its id.
absl::StatusOr<Job> ParseJob(std::string_view line, int64_t line_number, const Job& defaults = {});
// Returns the label of the job's answer, also if ParseJob refuses the line.
JobLabel LabelOfLine(std::string_view line, int64_t line_number);

// Reads "id" or "custom_id".
absl::Status ReadJobId(const JsonPlace& place, const nlohmann::json& value, JobLabel& label);

// Maps the ids of tokens to their bytes.
using TokenPieces = absl::flat_hash_map<TokenId, std::string>;

// One choice.
struct JobResult {
  std::optional<int32_t> choice;  // if the job asked for several
  std::vector<TokenId> prompt_token_ids;
  std::vector<TokenId> token_ids;
  std::string text;
  std::string finish_reason;  // "stop", "length"
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  std::vector<TokenDetail> logprobs;  // one for each token, if asked for
  uint64_t logits_hash = 0;           // 0: not asked for
  // Figures by name, in the order of the request's path; times end in "_us".
  std::vector<std::pair<std::string, int64_t>> ledger;
  std::string prefill_worker;  // empty: the decode worker, or this process
  std::string pull_source;     // had a part of the prompt cached; empty: nothing was pulled
  std::string decode_worker;
};

}  // namespace baton
