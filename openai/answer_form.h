// How a client of OpenAI's API wants its answer written.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "common/prompt_chunks.h"

namespace baton {

enum class OpenAiEndpoint : uint8_t { kChatCompletions, kCompletions };

struct AnswerForm {
  OpenAiEndpoint endpoint = OpenAiEndpoint::kChatCompletions;
  int32_t prompts = 1;            // prompts of the request
  std::string prompt_field = {};  // "messages" or "prompt"; empty: others give the prompt
  int32_t n = 1;                  // choices for each prompt
  bool stream = false;
  bool include_usage = false;     // of a stream: a last chunk with the usage
  bool continuous_usage = false;  // of a stream with usage: every chunk has the usage so far
  bool logprobs = false;
  bool return_token_ids = false;
  bool return_ledger = false;
  // With "echo": the text or tokens of each prompt, written before its answers. Else empty.
  std::vector<PromptPart> echo = {};
};

}  // namespace baton
