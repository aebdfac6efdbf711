// Repair of prompt chunks: which tokens of a prompt are computed again with attention to everything
// before them, and where their KV goes.
//
// `first:K` recomputes the first K tokens of every chunk. `share:R` recomputes the share R of the
// chunks' tokens whose K and V change most. With scope `system` the first chunk is left out,
// because it already sees everything that stands before it.
//
// Rows are tokens in the frame of the question (cache/sequence_frame.h), in the order of the
// prompt. The decision record docs/decisions/0037-repair-of-prompt-chunks.md says what a row sees.
//
// Pure. Thread safety: plain data; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_copy.h"
#include "cache/chunk_layout.h"
#include "cache/sequence_frame.h"
#include "common/prompt_chunks.h"
#include "common/strong_int.h"

namespace baton {

struct RepairRows {
  std::vector<TokenId> tokens;
  std::vector<FrameRow> rows;  // parallel; slots rise
  int32_t size() const { return static_cast<int32_t>(rows.size()); }
};

// The rows that a repair chooses from. `first:K` recomputes all of them. Empty without a repair.
RepairRows CandidateRows(const ChunkLayout& layout, int32_t block_size);
// Number of candidates that the repair recomputes: all, or ⌈R · candidates⌉.
int32_t RowsToRepair(const ChunkRepair& repair, int32_t candidates);
// The most blocks whose contents the repair changes. 0: it changes nothing.
int32_t BlocksOfRepair(const ChunkLayout& layout, int32_t block_size);
// Returns the `count` candidates whose `changes` are largest, in the order of the candidates. Among
// equal changes the earlier ones are chosen. NaN counts as the smallest. REQUIRES: one change for
// each candidate; count <= candidates.
RepairRows LargestChanges(const RepairRows& candidates, std::span<const double> changes,
                          int32_t count);

// Replaces every block of the frame that has a row by the next one of `own`, and sets the frame's
// rows. Returns the copies that fill the new blocks before the rows are computed. A block whose
// tokens are all rows needs no copy. REQUIRES: `own` has as many blocks as the rows touch.
std::vector<BlockCopy> MakePrivate(std::span<const FrameRow> rows, std::span<const BlockId> own,
                                   int32_t block_size, SequenceFrame& frame);

}  // namespace baton
