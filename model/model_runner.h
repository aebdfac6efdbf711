// Runs one step of a model: some tokens of some sequences, through all layers, with paged KV.
//
// The engine sees models through this interface alone; tests and simulations put a fake behind it.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_copy.h"
#include "common/strong_int.h"
#include "model/slot_run.h"

namespace baton {

// Consecutive tokens of one sequence. Their KV goes to the slots they occupy; each sees its
// sequence up to itself, or the runs that the chunk names.
struct StepChunk {
  std::span<const TokenId> tokens;
  int32_t begin_slot = 0;      // slot of tokens[0]
  int32_t begin_position = 0;  // position of tokens[0]; differs from the slot for reused chunks
  std::span<const BlockId> block_table;  // covers slots [0, begin_slot + tokens.size())
  int32_t logit_rows = 0;                // logits of the last so many tokens

  // Input embeddings [tokens, hidden] in place of the ids, which then only count the rows and may
  // have any value. Empty: the ids' embeddings.
  std::span<const float> embeddings = {};
  // [tokens]. A token's key and its query both turn by its position. Empty: begin_position and the
  // numbers behind it, in every component.
  std::span<const RowPosition> positions = {};
  // What the last token sees, in the order of attention. The last run holds the chunk's own slots
  // and ends with them; each earlier token sees one slot less of it. The runs do not overlap, and
  // block_table covers them. Empty: one run from slot 0, with origin 0 and shift 0.
  std::span<const SlotRun> runs = {};
  // Segment of the input (token type) and LoRA adapter. No op reads them yet: runners refuse any
  // value but 0 as Unimplemented.
  int32_t segment = 0;
  int32_t adapter = 0;
};

struct StepInput {
  std::vector<StepChunk> chunks;
  // How many chunks there are up to the last one that somebody still wants; never rises. Asked
  // between ops: what is behind them need not be computed any more. Empty: all are wanted.
  std::function<int32_t()> wanted = nullptr;
  // Told, in rising order and on the thread that runs the step, that the KV of the first `layers`
  // layers lies in the pool, to stay, for all tokens of the chunks that `wanted` last said. A
  // runner need not tell. May be empty.
  std::function<void(int32_t layers)> kv_written = nullptr;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // REQUIRES: tokens in the vocabulary, tables in the pool, totals within the limits the runner was
  // made for. After it returns all KV of the step is written, but for chunks behind those that
  // `wanted` last said: what lies in their slots, and in their rows of logits, is undefined.
  // Internal: the device failed. Cancelled: no chunk is wanted any more. InvalidArgument: runs,
  // positions or embeddings do not fit their chunk, or exceed the limits for them.
  virtual absl::Status Run(const StepInput& input) = 0;
  // Copies the KV of blocks' leading slots, all layers, one after the other: what forks that write
  // need. Done when it returns. REQUIRES: blocks in the pool. Internal: the device failed.
  virtual absl::Status CopyBlocks(std::span<const BlockCopy> copies) = 0;
  // Row `row` of the last step's logits [vocabulary], counted over all chunks' logit_rows in order.
  // Valid until the next Run.
  virtual std::span<const float> Logits(int32_t row) const = 0;
};

}  // namespace baton
