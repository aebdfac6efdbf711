// What router and workers tell each other about chunked prompts: converts it between the wire and
// common/.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "common/prompt_chunk_support.h"
#include "common/prompt_chunks.h"

namespace baton {

// Leaves options that have their defaults empty.
v1::ChunkedPrompt ChunkedPromptToWire(const ChunkedPrompt& prompt);

// `prompt_token_ids`: number of tokens in the request's ordinary prompt, which must be 0.
// InvalidArgument, with value and limit: that number, too many chunks, too many tokens in all parts
// together, or an unknown option. These are checked before anything is copied. The caller must
// still check the result (CheckChunkedPrompt).
absl::StatusOr<ChunkedPrompt> ChunkedPromptFromWire(const v1::ChunkedPrompt& wire,
                                                    int prompt_token_ids);

v1::PromptChunkSupport ChunkSupportToWire(const PromptChunkSupport& support);
// Workers are not trusted: a refusal is cut to 256 bytes. The size of pieces can have any value.
PromptChunkSupport ChunkSupportFromWire(const v1::PromptChunkSupport& wire);

}  // namespace baton
