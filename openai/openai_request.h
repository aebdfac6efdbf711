// Reads the bodies of /v1/chat/completions and /v1/completions.
//
// All fields of a job are read as in jobs (requests/request_fields.h). OpenAI's further fields are
// declared here. Differences from jobs:
//   - An unknown field is ignored and named in `ignored_fields`.
//   - A field without effect in Baton is accepted (`user`, `store`, …).
//   - A field that would change the answer but is not supported is InvalidArgument, for example
//     `tools`.
//   - /v1/completions takes a list of prompts, and generates 16 tokens unless the body says more.
//
// Bodies are untrusted. `null` is the same as absent. Of equal keys the last one counts, as in
// jobs. Invalid UTF-8 is refused. Every error is InvalidArgument; api_error.h finds its "param".
//
// Thread safety: pure functions. The time is linear in the body's length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "openai/answer_form.h"
#include "requests/client_request.h"

namespace baton {

inline constexpr size_t kMaxPrompts = 32;  // of one body
// Depth of arrays and objects. Ignored fields may be deeper than any field that is read.
inline constexpr int kMaxBodyDepth = 64;
inline constexpr int32_t kDefaultCompletionTokens = 16;

struct OpenAiRequest {
  std::string model = {};  // empty: not given
  // 1–kMaxPrompts requests, which differ only in their input. They have no request id.
  std::vector<ClientRequest> prompts = {};
  AnswerForm form = {};
  // Names of the fields that were ignored, sorted, without repetition and with "[]" for indexes:
  // "messages[].name". At most IgnoredFields::kMostNames. Untrusted text.
  std::vector<std::string> ignored_fields = {};
};

// `max_bytes`: InvalidArgument beyond it.
absl::StatusOr<OpenAiRequest> ReadOpenAiRequest(OpenAiEndpoint endpoint, std::string_view body,
                                                size_t max_bytes);

// Returns the value of the header Baton-Ignored-Fields: at most 16 names of at most 64 bytes,
// joined by ", ", then the number of further names. Bytes other than letters, digits and _ - . [ ]
// are percent-encoded, so the value is safe in a header. Empty: nothing was ignored.
std::string IgnoredFieldsHeader(const std::vector<std::string>& ignored_fields);

}  // namespace baton
