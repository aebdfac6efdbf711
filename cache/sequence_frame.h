// The KV that a sequence sees before its own: the parts of a chunked prompt.
//
// A chunked prompt is computed as several sequences, its parts. A frame puts the blocks of other
// parts before the blocks of one sequence. A step sees one table: the frame's blocks, then the
// sequence's own. Each part begins at a block boundary. So slots behind a part's end hold nothing
// that counts, and no run names them.
//
// With F = slots(block_size), a step computes the sequence's slots [b, b + n) like this:
//  - begin_slot = F + b, begin_position = frame.begin_position + b
//  - block_table = frame.blocks, then the sequence's own blocks
//  - runs = frame.runs, then {F, F + b + n} with shift 0
//  - every run has its begin as tile origin
//
// A repair of prompt chunks has rows: its tokens do not follow the frame, they replace tokens of
// it. A step computes rows [b, b + n) like this (docs/decisions/0037-repair-of-prompt-chunks.md):
//  - row i writes its KV to rows[i].slot, and sees runs 0 to rows[i].run, the last one up to itself
//  - block_table = frame.blocks
//
// Thread safety: immutable once it is shared. The last owner must be on the engine thread, because
// `holds` may change the cache.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/strong_int.h"

namespace baton {

// Slots [begin, end) of the frame's blocks. The sequence sees all of them.
struct FrameRun {
  int32_t begin = 0;  // at a block boundary
  int32_t end = 0;
  int32_t position_shift = 0;  // position in this frame, less the position that the keys were
                               // computed at
  bool operator==(const FrameRun&) const = default;
};

// Where a token of a repair lies in the frame.
struct FrameRow {
  int32_t slot = 0;  // in the run
  int32_t run = 0;   // of the token's own chunk
  int32_t position =
      0;  // that its key is rotated for: the place in the prompt, less the run's shift
  bool operator==(const FrameRow&) const = default;
};

struct SequenceFrame {
  std::vector<BlockId> blocks;
  std::vector<FrameRun> runs;  // in the order of attention; they do not overlap
  int32_t begin_position = 0;  // of the sequence's slot 0
  // Only of a repair: the places of the sequence's tokens, slots rising.
  std::vector<FrameRow> rows;
  // Only with rows: a step stores nothing of them, and only says how much their K and V would
  // change (ModelRunner, StepChunk::compares).
  bool compares = false;
  // Keeps the blocks and their contents until the frame is destroyed: for example references to
  // entries of the chunk cache. May be null if the owner of the frame keeps them.
  std::shared_ptr<const void> holds;

  int32_t slots(int32_t block_size) const {
    return static_cast<int32_t>(blocks.size()) * block_size;
  }
};

}  // namespace baton
