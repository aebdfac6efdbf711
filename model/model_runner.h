// Runs steps of a model: some tokens of some sequences, through all layers, with paged KV, and the
// draws of the tokens that follow.
//
// A step is submitted and collected. An inline device runs it inside Submit (model/inline_runner.h)
// and has one step in flight. An asynchronous device runs steps in the order of their submission on
// a stream of its own; the engine plans and submits the next step meanwhile. A chunk of that step
// may name a token that the running one is still to draw.
//
// The engine sees models through this interface alone; tests and simulations put a fake behind it.
//
// Thread safety: belongs to the engine thread, which also destroys it. An asynchronous device calls
// StepInput::wanted and the waker on threads of its own, and nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/block_copy.h"
#include "cache/kv_cache_spec.h"
#include "common/status_macros.h"
#include "common/strong_int.h"
#include "model/slot_run.h"
#include "model/token_draw.h"

namespace baton {

// A submitted step. A runner counts from 1.
using StepId = StrongInt<struct StepIdTag, int64_t>;

// A token that the host does not know yet: draw number `draw`, counted over all draws of all chunks
// in order, of `step`.
struct DrawnBy {
  StepId step;
  int32_t draw = 0;
};

// Consecutive tokens of one sequence. Their KV goes to the slots they occupy. Each sees its
// sequence up to itself, in layers with a sliding window the last `window` slots of that, or the
// runs that the chunk names.
struct StepChunk {
  std::span<const TokenId> tokens;  // with `token_from`: one, of any value in the vocabulary
  int32_t begin_slot = 0;           // slot of tokens[0]
  int32_t begin_position = 0;  // position of tokens[0]; differs from the slot for reused chunks
  std::span<const BlockId> block_table;  // covers slots [0, begin_slot + tokens.size())
  // Of KV groups 1, 2, ...: as long as block_table, with kNoBlock where no token of the chunk
  // looks.
  std::array<std::span<const BlockId>, kMaxKvGroups - 1> window_tables = {};
  int32_t logit_rows = 0;                 // logits of the last so many tokens
  std::span<const TokenDraw> draws = {};  // from these rows
  bool keeps_logits = false;              // Logits of these rows will be asked for
  // The chunk is this one token. A draw that failed, or that nobody wanted any more, gives token 0.
  std::optional<DrawnBy> token_from = std::nullopt;

  // Input embeddings [tokens, hidden] in place of the ids, which then only count the rows and may
  // have any value. Empty: the ids' embeddings.
  std::span<const float> embeddings = {};
  // [tokens]. A token's key and its query both turn by its position. Empty: begin_position and the
  // numbers behind it, in every component.
  std::span<const RowPosition> positions = {};
  // What the last token sees, in the order of attention. The last run holds the chunk's own slots
  // and ends with them; each earlier token sees one slot less of it. The runs do not overlap, and
  // block_table covers them. Empty: one run from slot 0, with origin 0 and shift 0. A model with
  // sliding windows takes no runs (Unimplemented).
  std::span<const SlotRun> runs = {};
  // Segment of the input (token type) and LoRA adapter. No op reads them yet: runners refuse any
  // value but 0 as Unimplemented.
  int32_t segment = 0;
  int32_t adapter = 0;

  std::span<const BlockId> table(int32_t group) const {
    return group == 0 ? block_table : window_tables[static_cast<size_t>(group) - 1];
  }
};

// Spans are read in Submit only; the functions are called until Collect.
struct StepInput {
  std::vector<StepChunk> chunks;
  // How many chunks there are up to the last one that is still wanted; never rises. A runner asks
  // between ops: what is behind them need not be computed any more. An asynchronous device asks on
  // its stream's thread, between Submit and Collect. Empty: all are wanted.
  std::function<int32_t()> wanted = nullptr;
  // Told on the engine thread, in rising order: the KV of the first `layers` layers lies in the
  // pool, to stay, for all tokens of the first `chunks` chunks. An inline device tells between ops;
  // an asynchronous one from Poll or Collect, and of the oldest uncollected step only. A runner
  // need not tell. May be empty.
  std::function<void(int32_t layers, int32_t chunks)> kv_written = nullptr;
};

struct StepResult {
  // One for each draw of the step, counted over all chunks in order. Those of chunks behind the
  // last wanted one are undefined. Internal: the row allows no token, or holds a NaN.
  std::vector<absl::StatusOr<TokenId>> drawn;
};

// What a runner did since it was made, for `inspect`.
struct RunnerCounters {
  int64_t graph_replays = 0;
  int64_t eager_steps = 0;
  int64_t table_entries = 0;  // of block tables, uploaded
  int64_t table_uploads = 0;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // How many steps may be uncollected: 1 for an inline device, 2 for an asynchronous one.
  virtual int32_t max_in_flight() const { return 1; }

  // Enqueues a step behind those submitted before; an inline device runs it. Internal: the device
  // failed, nothing was enqueued. InvalidArgument: runs, positions or embeddings do not fit their
  // chunk, or exceed the limits for them; nothing was enqueued. REQUIRES: fewer than
  // max_in_flight() uncollected steps; tokens in the vocabulary, tables in the pool, totals within
  // the limits the runner was made for; `token_from` names a draw of the step submitted just
  // before, which is uncollected.
  virtual absl::StatusOr<StepId> Submit(const StepInput& input) = 0;
  // Waits for the oldest uncollected step, which must be `step`, and forgets it, also where it
  // failed. Afterwards all its KV is written, but for chunks behind those that `wanted` last said:
  // the contents of their slots and rows are undefined. Internal: the device failed. Cancelled: no
  // chunk is wanted any more.
  virtual absl::StatusOr<StepResult> Collect(StepId step) = 0;
  // Whether Collect would not wait. Never blocks. REQUIRES: `step` is uncollected.
  virtual bool Done(StepId /*step*/) const { return true; }
  // Calls kv_written for layers that an asynchronous device has finished. Never blocks.
  virtual void Poll() {}
  // An asynchronous device calls it from any thread when Poll or Done has news. Set before the
  // first Submit.
  virtual void set_waker(std::function<void()> /*waker*/) {}

  // Copies the KV of blocks' leading slots, all layers of their group, in the order given: behind
  // the steps submitted before, ahead of those submitted later. While no step is uncollected, these
  // and all earlier copies are done when it returns; else at the latest with the Collect of the
  // next step submitted. REQUIRES: blocks in the pool. Internal: the device failed.
  virtual absl::Status CopyBlocks(std::span<const BlockCopy> copies) = 0;
  // Row `row` of a step's logits [vocabulary], counted over all chunks' logit_rows in order. Valid
  // from the step's Collect until the next Submit. REQUIRES: the row's chunk keeps its logits.
  virtual std::span<const float> Logits(StepId step, int32_t row) const = 0;
  virtual RunnerCounters counters() const { return {}; }
};

// Submits one step and waits for it. REQUIRES: no step is uncollected.
inline absl::StatusOr<StepId> RunStep(ModelRunner& runner, const StepInput& input) {
  ASSIGN_OR_RETURN(const StepId step, runner.Submit(input));
  RETURN_IF_ERROR(runner.Collect(step).status());
  return step;
}

}  // namespace baton
