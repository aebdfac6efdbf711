// Makes the bodies of OpenAI-compatible requests.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "loadtest/load_request.h"
#include "loadtest/load_target.h"

namespace baton {

struct OpenAiOptions {
  std::string model;
  bool as_text = false;    // prompts as words instead of token ids
  bool ignore_eos = true;  // answers do not end early; servers that do not know the field ignore it
  bool return_ledger = false;  // asks a Baton router for its ledger
};

struct OpenAiCall {
  std::string path;  // behind the base path: "/completions"
  std::string body;  // JSON
};

// Conversations become chat completions, in text. Prompts with chunks become completions with the
// fields `system`, `chunks` and `question`, which only Baton has. Other prompts become completions.
OpenAiCall MakeOpenAiCall(const LoadRequest& request, const OpenAiOptions& options);

// Reads the answer to GET /models: the first model. It also reads how many tokens the context has,
// where a server tells it (`max_model_len` of vLLM, `meta.n_ctx_train` and `meta.n_vocab` of
// llama.cpp). Unavailable if the answer names no model.
absl::StatusOr<TargetModel> ParseModels(std::string_view body);

}  // namespace baton
