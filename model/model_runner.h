// Runs steps of a model. A step computes some tokens of some sequences through all layers, with
// paged KV, and draws the tokens that follow.
//
// A step is submitted and later collected. An inline device runs it inside Submit
// (model/inline_runner.h) and has one step in flight. An asynchronous device runs steps in
// submission order on its own stream. Meanwhile the engine plans and submits the next step. A chunk
// of that step may use a token that the running step has not drawn yet.
//
// The engine uses models through this interface only. Tests and simulations replace it by a fake.
//
// Thread safety: belongs to the engine thread, which also destroys it. An asynchronous device calls
// StepInput::wanted and the waker, and nothing else, on its own threads.
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

// Id of a submitted step. A runner counts from 1.
using StepId = StrongInt<struct StepIdTag, int64_t>;

// Names a token that the host does not know yet: draw number `draw` of `step`, counted over all
// draws of all chunks in order.
struct DrawnBy {
  StepId step;
  int32_t draw = 0;
};

// Tokens of one sequence, consecutive unless they have places. Their KV is written to their own
// slots. Each token sees either the runs that the chunk names or its sequence up to itself. In a
// layer with a sliding window that is only the last `window` slots.
struct StepChunk {
  std::span<const TokenId> tokens;  // with `token_from`: one token, any value in the vocabulary
  int32_t begin_slot = 0;           // slot of tokens[0]
  int32_t begin_position = 0;  // position of tokens[0]; differs from begin_slot in reused chunks
  std::span<const BlockId> block_table;  // covers slots [0, begin_slot + tokens.size())
  // Tables of KV groups 1, 2, …. Each is as long as block_table, with kNoBlock where no token of
  // the chunk looks.
  std::array<std::span<const BlockId>, kMaxKvGroups - 1> window_tables = {};
  int32_t logit_rows = 0;                 // the last logit_rows tokens get logits
  std::span<const TokenDraw> draws = {};  // draws from these rows
  bool keeps_logits = false;              // the caller will ask for Logits of these rows
  // If set, the chunk is the one token drawn there. A draw that failed or was no longer wanted
  // gives token 0.
  std::optional<DrawnBy> token_from = std::nullopt;

  // Input embeddings [tokens, hidden] that replace the ids. The ids then only count the rows and
  // may have any value. Empty: the ids' embeddings.
  std::span<const float> embeddings = {};
  // Positions [tokens]. They rotate both the key and the query of a token. Empty: begin_position,
  // begin_position + 1, …, in every component.
  std::span<const RowPosition> positions = {};
  // The runs that the last token sees, in the order of attention. The last run contains the chunk's
  // own slots and ends with them; each earlier token sees one slot less of it. The runs do not
  // overlap, and block_table covers them. Empty: one run from slot 0 with origin 0 and shift 0. A
  // model with sliding windows refuses runs (Unimplemented).
  std::span<const SlotRun> runs = {};
  // Places [tokens] of rows that compute slots of several runs again; slots rise. Row i sees
  // runs[0] to runs[places[i].run], the last of these up to its own slot. `positions` must have the
  // positions of the rows less the shift of their own run, which their keys are rotated for. So a
  // row's query is rotated for positions[i] in its own run, and in another run for
  //   positions[i] + (shift of its own run) - (shift of the other run).
  // begin_slot and begin_position do not count. Empty: the rows follow each other.
  std::span<const RowPlace> places = {};
  // The rows store nothing. Layer 0 computes them, and StepResult::changes gets how much their K
  // and V of layer 1 differ from the stored ones. REQUIRES: places, no logits, no other chunk
  // behind it that does not compare, and a runner that compares rows.
  bool compares = false;
  // Segment of the input (token type) and LoRA adapter. No op supports them yet. Runners refuse
  // every value but 0 as Unimplemented.
  int32_t segment = 0;
  int32_t adapter = 0;

  std::span<const BlockId> table(int32_t group) const {
    return group == 0 ? block_table : window_tables[static_cast<size_t>(group) - 1];
  }
};

// A runner reads the spans in Submit only. It calls the functions until Collect.
struct StepInput {
  std::vector<StepChunk> chunks;
  // Returns the number of chunks up to the last one that is still wanted. Never increases. A runner
  // asks between ops and need not compute the chunks behind it any more. An asynchronous device
  // asks on its stream's thread, between Submit and Collect. Empty: all chunks are wanted.
  std::function<int32_t()> wanted = nullptr;
  // Reports finished KV: for all tokens of the first `chunks` chunks, the KV of the first `layers`
  // layers is final in the pool. The runner calls it on the engine thread, in rising order. An
  // inline device calls it between ops. An asynchronous device calls it from Poll or Collect, and
  // only for the oldest uncollected step. A runner may omit the calls. May be empty.
  std::function<void(int32_t layers, int32_t chunks)> kv_written = nullptr;
};

struct StepResult {
  // One result for each draw of the step, counted over all chunks in order. Results of chunks
  // behind the last wanted one are undefined. Internal: the row allows no token, or holds a NaN or
  // +infinity.
  std::vector<absl::StatusOr<TokenId>> drawn;
  // One number for each row of the chunks that compare, counted over all of them in order: the
  // change of NUMERICS §7.
  std::vector<float> changes = {};
};

// Counters of a runner since its creation, for `inspect`.
struct RunnerCounters {
  int64_t graph_replays = 0;
  int64_t sharing_replays = 0;  // of them, with attention that reads shared KV once
  int64_t eager_steps = 0;
  int64_t table_entries = 0;  // uploaded entries of block tables
  int64_t table_uploads = 0;
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Maximum number of uncollected steps: 1 for an inline device, 2 for an asynchronous one.
  virtual int32_t max_in_flight() const { return 1; }

  // Enqueues a step behind the earlier ones. An inline device runs it. An error means that nothing
  // was enqueued. Internal: the device failed. InvalidArgument: runs, positions or embeddings do
  // not fit their chunk or exceed their limits.
  // REQUIRES: fewer than max_in_flight() steps are uncollected; tokens are in the vocabulary;
  // tables are in the pool; totals are within the runner's limits; `token_from` names a draw of the
  // step submitted just before, which is uncollected.
  virtual absl::StatusOr<StepId> Submit(const StepInput& input) = 0;
  // Waits for the oldest uncollected step and releases it, even if it failed. Afterwards all its KV
  // is written, except for chunks behind those that `wanted` last returned. The contents of their
  // slots and rows are undefined. Internal: the device failed. Cancelled: no chunk is wanted any
  // more. REQUIRES: `step` is that oldest step.
  virtual absl::StatusOr<StepResult> Collect(StepId step) = 0;
  // Returns true if Collect would not wait. Never blocks. REQUIRES: `step` is uncollected.
  virtual bool Done(StepId /*step*/) const { return true; }
  // Calls kv_written for the layers that an asynchronous device has finished. Never blocks.
  virtual void Poll() {}
  // An asynchronous device calls `waker` from any thread when Poll or Done has news. REQUIRES: set
  // before the first Submit.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): asynchronous runners keep the waker
  virtual void set_waker(std::function<void()> /*waker*/) {}

  // Copies the KV of blocks' leading slots, in all layers of their group, in the given order. The
  // copies run after the steps submitted before and before those submitted later. If no step is
  // uncollected, these and all earlier copies are done when the call returns. Otherwise they are
  // done at the latest when the next submitted step is collected. Internal: the device failed.
  // REQUIRES: the blocks are in the pool.
  virtual absl::Status CopyBlocks(std::span<const BlockCopy> copies) = 0;
  // Returns row `row` of a step's logits [vocabulary], counted over all chunks' logit_rows in
  // order. It is valid from the step's Collect until the next Submit. REQUIRES: the row's chunk
  // sets keeps_logits.
  virtual std::span<const float> Logits(StepId step, int32_t row) const = 0;
  // True if chunks may compare.
  virtual bool compares_rows() const { return false; }
  // True if steps are faster when sequences that share blocks are next to each other.
  virtual bool shares_prefixes() const { return false; }
  virtual RunnerCounters counters() const { return {}; }
  // Device::Health of the runner's device: OK, or Internal from then on. Safe from any thread.
  virtual absl::Status Health() const { return absl::OkStatus(); }
};

// Submits one step and waits for it. REQUIRES: no step is uncollected.
inline absl::StatusOr<StepId> RunStep(ModelRunner& runner, const StepInput& input) {
  ASSIGN_OR_RETURN(const StepId step, runner.Submit(input));
  RETURN_IF_ERROR(runner.Collect(step).status());
  return step;
}

}  // namespace baton
