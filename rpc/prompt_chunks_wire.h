// Converts the parts of a chunked prompt and its options between the wire and
// common/prompt_chunks.h.
//
// Thread safety: pure functions.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/prompt_chunks.h"
#include "common/request_check.h"

namespace baton {

// A part that is not set is empty text.
std::vector<TokenId> TokenIdsFromWire(const v1::TokenIds& wire);
PromptPart PartFromWire(const v1::PromptPart& wire);
v1::PromptPart PartToWire(const PromptPart& part);

std::vector<PromptPart> PartListFromWire(
    const google::protobuf::RepeatedPtrField<v1::PromptPart>& wire);

ChunkedText PartsFromWire(const v1::PromptParts& wire);
v1::PromptParts PartsToWire(const ChunkedText& parts);

// Sizes of the request's parts, or of the chunks of its messages, without a copy of them.
PartSizes PartSizesOf(const v1::GenerateRequest& wire);
PartSizes PartSizesOf(const v1::Messages& wire);

// Absent options have their defaults. InvalidArgument: an unknown name.
absl::StatusOr<ChunkOptions> ChunkOptionsFromWire(const v1::GenerateRequest& wire);
// Leaves options that have their defaults absent.
void ChunkOptionsToWire(const ChunkOptions& options, v1::GenerateRequest& wire);

}  // namespace baton
