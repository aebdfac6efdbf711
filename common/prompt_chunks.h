// Prompt chunks: the parts of a retrieval prompt whose KV is reused wherever the part stands.
//
// A chunked prompt has a system part, chunks and a question. Each part is tokenised alone. A chunk
// attends to the system part and to itself, or to itself alone (ChunkScope). The question and the
// answer attend to everything. A prefill slice (scheduler/) is something else: a piece of a prompt
// that one step computes.
//
// Parts are numbered in the order of the prompt: part 0 is the system part, part 1 is chunk 0, and
// the last part is the question.
//
// Thread safety: plain data; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/token_id.h"

namespace baton {

inline constexpr int64_t kMaxPromptChunks = 500;  // of one request
inline constexpr int64_t kMaxChunkSeparatorBytes = 256;

// Positions of the parts. S is the number of system tokens.
enum class ChunkPositions : uint8_t {
  kOverlap,     // every chunk at S, the question at S + the longest chunk
  kSequential,  // each part behind the part before it
};

// What the tokens of a chunk attend to, besides earlier tokens of the chunk.
enum class ChunkScope : uint8_t {
  kSystem,  // the system part
  kAlone,   // nothing: the chunk is computed as if it began at position 0
};

// Which tokens of a reused chunk are computed again with attention to everything before them.
struct ChunkRepair {
  enum class Kind : uint8_t {
    kNone,
    kFirst,  // the first `first_tokens` of each chunk
    kShare,  // a share of each request's chunk tokens: those whose KV deviates most
  };
  // A share is a whole number of millionths, so that every machine repairs the same tokens.
  static constexpr int32_t kWhole = 1'000'000;

  Kind kind = Kind::kNone;
  int32_t first_tokens = 0;      // only kFirst; 0 … kMaxPromptTokenIds
  int32_t share_millionths = 0;  // only kShare; 0 … kWhole

  // True if no token is computed again, as with first:0 and share:0.
  bool RepairsNothing() const {
    return (kind != Kind::kFirst || first_tokens == 0) &&
           (kind != Kind::kShare || share_millionths == 0);
  }

  friend bool operator==(const ChunkRepair&, const ChunkRepair&) = default;
};

struct ChunkOptions {
  ChunkPositions positions = ChunkPositions::kOverlap;
  ChunkScope scope = ChunkScope::kSystem;
  ChunkRepair repair = {};

  friend bool operator==(const ChunkOptions&, const ChunkOptions&) = default;
};

// The names that users write: "overlap", "sequential"; "system", "alone"; "none", "first:16",
// "share:0.15". A parsed name and its printed form are equal up to trailing zeros of a share. The
// error is InvalidArgument and names the field, the value and the allowed values.
std::string_view ChunkPositionsName(ChunkPositions positions);
std::string_view ChunkScopeName(ChunkScope scope);
std::string ChunkRepairName(const ChunkRepair& repair);
absl::StatusOr<ChunkPositions> ParseChunkPositions(std::string_view name);
absl::StatusOr<ChunkScope> ParseChunkScope(std::string_view name);
absl::StatusOr<ChunkRepair> ParseChunkRepair(std::string_view name);

// A part as a client gives it: text, or token ids that are taken as they are.
using PromptPart = std::variant<std::string, std::vector<TokenId>>;

// A chunked prompt before it is tokenised.
struct ChunkedText {
  PromptPart system;  // may be empty
  std::vector<PromptPart> chunks;
  PromptPart question;
};

// A chunked prompt as the model sees it. It may have no chunks: then it has two parts.
struct ChunkedPrompt {
  ChunkOptions options;
  std::vector<TokenId> system;               // may be empty
  std::vector<std::vector<TokenId>> chunks;  // none is empty
  std::vector<TokenId> question;             // not empty

  friend bool operator==(const ChunkedPrompt&, const ChunkedPrompt&) = default;
};

// Number of tokens of all parts.
int64_t TokensOf(const ChunkedPrompt& prompt);
// Tokens of all parts in the order of the prompt. Users see them as the prompt's token ids.
std::vector<TokenId> FlatTokens(const ChunkedPrompt& prompt);

// The position of each part's first token; the system part begins at 0.
struct PartPositions {
  std::vector<int64_t> chunks;
  int64_t question = 0;
  int64_t answer = 0;  // behind the question
};
PartPositions PositionsOf(const ChunkedPrompt& prompt);

// Returns what messages call a part: "part 2 (chunks[1])". `chunks`: number of chunks.
std::string PartName(size_t part, size_t chunks);

// Checks before tokenising. Each error is InvalidArgument and names the value and the limit.
absl::Status CheckChunkCount(int64_t chunks);
absl::Status CheckChunkSeparator(std::string_view separator);
absl::Status CheckPartsNotEmpty(const ChunkedText& parts);

// Checks everything that does not depend on a model's architecture: number of chunks and of tokens,
// empty parts, token ids, and that no position reaches the context's end. The context must have
// room for at least one token of the answer. 0 means unknown; such a limit is not checked. The
// error is InvalidArgument and names the part, the value and the limit.
absl::Status CheckChunkedPrompt(const ChunkedPrompt& prompt, int32_t context_length,
                                int32_t vocabulary);

}  // namespace baton
