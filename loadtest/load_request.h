// One request of a load test, in a form that does not depend on the target's protocol.
//
// A prompt is a list of pieces. A target that takes token ids sends all their tokens. For a target
// that takes text, each token becomes a word (PieceText), so equal tokens are equal text.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/token_id.h"

namespace baton {

enum class PieceRole : uint8_t { kPrompt, kUser, kAssistant, kSystem, kChunk, kQuestion };

struct PromptPiece {
  PieceRole role = PieceRole::kPrompt;
  std::vector<TokenId> tokens;
  std::string answer;  // kAssistant: the text of an earlier answer
};

struct LoadRequest {
  int64_t number = 0;         // position in the workload; of a later turn: that of the first
  int64_t conversation = -1;  // of a chat; -1: the request stands alone
  int32_t turn = 0;           // of the conversation, from 0
  std::optional<int64_t> trace_at_us;
  std::vector<PromptPiece> pieces;
  int32_t prompt_tokens = 0;  // planned
  int32_t output_tokens = 1;  // planned; the answer ends neither before nor after them
  // Tokens by which the request was shortened, because the context would not hold them.
  int32_t clipped_prompt_tokens = 0;
  int32_t clipped_output_tokens = 0;
};

// What an answer brought that the next turn of a conversation needs.
struct AnswerContent {
  bool whole = false;
  std::string text;
  std::vector<TokenId> tokens;  // empty if the target does not tell token ids
  int32_t prompt_tokens = 0;    // as the target counted them; 0: it did not
  int32_t output_tokens = 0;
};

// Returns the tokens of all pieces in their order.
std::vector<TokenId> AllTokens(const LoadRequest& request);

// Returns the text of a piece: the answer's text, or one common English word for each token.
std::string PieceText(const PromptPiece& piece);

}  // namespace baton
