#include "cli/job_format.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/jobs.h"
#include "requests/request_fields.h"

namespace baton {
namespace {

// The help text names this limit.
static_assert(kMaxJobLineBytes == size_t{32} << 20);

constexpr char kHelpAboveFields[] =
    R"(Job lines (--jobs):
  A job is one line with one JSON object, of at most 32 MiB. It must have exactly one of prompt,
  prompt_token_ids, messages and question. Every other field is optional. A flag with the name of
  a field replaces the default given here. null is the same as absent. Unknown fields are refused.

)";

constexpr char kHelpBelowFields[] = R"(
  Example: {"id": "a", "prompt": "The sky is", "max_tokens": 8, "temperature": 0}

  The lines of OpenAI's batches are jobs too:
  custom_id                   string or whole number; default: the line's number
  method                      "POST"
  url                         "/v1/chat/completions" or "/v1/completions"
  body                        object with the fields above except id. The first url needs messages. The
                              second needs prompt, a string or an array of token ids. model, a string,
                              is repeated in the result and not checked

  Example: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body":
            {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 8}}

Results of --jobs:
  With --json, each choice is a JSON line with the job's id. Otherwise it is "[id] text". A failed
  job has a line with its id and "error". A line of a batch has one result line in OpenAI's form:
  id, custom_id, response {status_code, request_id, body} and error. If the router does not tell the
  texts of tokens, logprobs have their ids. A job that never began has no result. The last line on standard error gives the number of such jobs.)";

}  // namespace

std::string JobFormatHelp() {
  constexpr size_t kColumn = 30;
  const std::string indent = "\n" + std::string(kColumn, ' ');
  std::string help = kHelpAboveFields;
  const auto add = [&](const char* name, const std::string& text) {
    absl::StrAppend(&help, absl::StrFormat("  %-*s", static_cast<int>(kColumn) - 2, name));
    for (const char c : text) {
      if (c == '\n') {
        help += indent;
      } else {
        help += c;
      }
    }
    help += '\n';
  };
  add("id", "string or whole number, repeated in the result; default: the line's number");
  ForEachRequestField(add);
  help += kHelpBelowFields;
  return help;
}

}  // namespace baton
