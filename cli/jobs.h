// Jobs as `baton run` and `baton generate` read them, and results as they print them: one JSON
// object a line.
//
// A job: {"id", one of "prompt" | "prompt_token_ids" | "messages", sampling fields named as in
// OpenAI's API}. null is as good as absent; "max_completion_tokens" is "max_tokens"; "n" is a
// number of answers; "logprobs" is a number of alternatives, or true, with that number in
// "top_logprobs" (else 0). Strict: an unknown field, a wrong type or a value out of range is an
// error that names line and field. What a line holds past the limits below is never kept.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "model/sampler.h"
#include "text/chat_message.h"

namespace baton {

inline constexpr size_t kMaxJobLineBytes = size_t{32} << 20;
inline constexpr size_t kMaxJobTokenIds = size_t{1} << 20;  // in one array

struct Job {
  std::string id;
  // One of these is set.
  std::optional<std::string> prompt;
  std::optional<std::vector<TokenId>> prompt_token_ids;
  std::optional<std::vector<ChatMessage>> messages;
  int32_t n = 1;  // choices, 1–kMaxChoices
  SamplingParams sampling;
  std::string tenant;
  std::string cache_salt;
  std::string session_id;  // for the router; one process ignores it
  int32_t priority = 0;    // −100–100
};

// `line_number` is for messages; a job without an id gets it as its id.
absl::StatusOr<Job> ParseJob(std::string_view line, int64_t line_number);
// The id that a job's answer carries, also where ParseJob refuses the line.
std::string JobId(std::string_view line, int64_t line_number);

struct JobTokenDetail {
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

// One choice.
struct JobResult {
  std::string id;
  std::optional<int32_t> choice;  // where the job asked for several
  std::vector<TokenId> prompt_token_ids;
  std::vector<TokenId> token_ids;
  std::string text;
  std::string finish_reason;  // "stop", "length"
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  std::vector<JobTokenDetail> logprobs;  // one a token when asked for
  uint64_t logits_hash = 0;              // 0: not asked for
  // Figures by name, in the order of the request's path; times end in "_us".
  std::vector<std::pair<std::string, int64_t>> ledger;
  std::string prefill_worker;  // empty: the decode worker, or this process
  std::string pull_source;     // had a part of the prompt cached; empty: nothing was pulled
  std::string decode_worker;
};

// Without the newline.
std::string ResultLine(const JobResult& result);
std::string ErrorLine(const std::string& id, const absl::Status& status);

}  // namespace baton
