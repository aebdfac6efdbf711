// Device buffers for the draws of a step. Parameters go to the device, drawn tokens come back. The
// device feeds tokens drawn by the previous step to this step without the host.
//
// Two steps may be uncollected. So the host side and the drawn tokens have two slots, one for each.
// The rest of the device side exists once, because the stream orders its uses:
//   copy the inputs → feed the tokens of the previous step → … → sample → copy to the host.
// The inputs also mark the step's tokens as skipped. So draws that are left out say so, and the
// next step is fed zeros.
//
// A captured step feeds and samples inside its graph, which has as many draws as rows: draws
// without a row fill it up. If a step has more draws, or more additions than the graph's buffers
// have room for, it draws behind the graph. So draws never decide whether a step uses a graph: the
// ranks of a tensor-parallel group must decide alike, and only the first one knows the draws.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/input_copies.h"
#include "model/model_runner.h"
#include "model/staged_array.h"
#include "model/staging_slot.h"
#include "model/step_rows.h"

namespace baton {

class DrawBuffers {
 public:
  // Takes the memory for steps of up to `max_draws` draws and `max_tokens` token rows. Later, only
  // steps with many additions need more. ResourceExhausted: no memory. REQUIRES: the device
  // outlives the result.
  static absl::StatusOr<std::unique_ptr<DrawBuffers>> Create(int64_t max_draws, int64_t max_tokens,
                                                             Device& device);

  // Enqueues the ops of eager steps, for Stream::Prepare.
  void EnqueueAllShapes(const float* logits, int64_t vocabulary, int32_t* token_ids,
                        Stream& stream) const;
  // Enqueue the ops of a graph of `rows` token rows: the feed comes first, the draws come last.
  // REQUIRES: rows <= max_draws, rows <= max_tokens.
  void EnqueueFeed(int64_t rows, int32_t* token_ids, Stream& stream) const;
  void EnqueueGraphDraws(int64_t rows, const float* logits, int64_t vocabulary,
                         Stream& stream) const;

  // Fills host slot `slot` with the draws of a step. graph_rows: rows of the step's graph, 0 for an
  // eager step. ResourceExhausted: no memory. REQUIRES: the step that last used `slot` is
  // collected; the step has at most max_draws draws; graph_rows <= max_draws, max_tokens.
  absl::Status Fill(const StepInput& input, int slot, int64_t graph_rows, Stream& stream);
  // Adds the copies to the device.
  void Upload(int slot, InputCopies& copies) const;
  // Of eager steps: replaces the tokens of chunks with `token_from` in `token_ids` [tokens].
  void Feed(int slot, int32_t* token_ids, Stream& stream) const;
  // Enqueues the draws that are still wanted, unless the step's graph has drawn.
  void Sample(const float* logits, int64_t vocabulary, int slot, StepRows& wanted,
              Stream& stream) const;
  // Enqueues the copy of the results to the host.
  void Fetch(int slot, Stream& stream) const;
  // Returns the results. row(i) returns logit row i for a message that names the token, or an empty
  // span if the row is gone. REQUIRES: the step has run.
  std::vector<absl::StatusOr<TokenId>> Drawn(
      int slot, const std::function<std::span<const float>(int32_t row)>& row) const;

 private:
  struct Slot {
    bool in_graph = false;  // the graph draws
    StagedArray<RowDraw> draws;
    StagedArray<RowDraw> no_draws;  // of a graph behind which the step draws; all without a row
    StagedArray<LogitAddition> additions;
    StagedArray<int32_t> first_addition;
    StagedArray<int32_t> source;       // [token rows]; empty: no chunk has token_from
    StagedArray<TokenId> skipped;      // [draws of the step] marks of skipped draws
    StagedArray<TokenId> drawn;        // [draws of the step], without those that fill up a graph
    StagedArray<int32_t> first_token;  // [1] where the slot's tokens begin on the device
  };

  explicit DrawBuffers(Device& device) : device_(device) {}
  absl::Status FillSources(const StepInput& input, int64_t rows, int slot);
  absl::Status FillDraws(const StepInput& input, int64_t draws, Slot& slot);
  // Where the draws of a step are on the device.
  struct DeviceDraws {
    RowDraw* draws = nullptr;
    LogitAddition* additions = nullptr;
    int32_t* first_addition = nullptr;
  };
  DeviceDraws DrawsOf(const Slot& slot) const;
  SampleArgs ArgsOf(const DeviceDraws& draws, const float* logits, int64_t vocabulary,
                    int64_t count) const;
  TokenId* DrawnIn(int slot) const { return drawn_ + slot * max_draws_; }
  // Makes room on the device for so many additions outside of graphs. Blocks until the stream is
  // idle if it must replace the memory.
  absl::Status GrowAdditions(int64_t additions, Stream& stream);

  Device& device_;
  std::array<Slot, kStepSlots> slots_;
  // On the device. These addresses never change, because graphs contain them.
  std::unique_ptr<DeviceBuffer> memory_;
  int64_t max_draws_ = 0;
  int64_t max_additions_ = 0;
  DeviceDraws in_graphs_;
  DeviceDraws outside_graphs_;
  int32_t* source_ = nullptr;
  int32_t* first_token_ = nullptr;
  TokenId* drawn_ = nullptr;                      // [kStepSlots, max_draws]
  std::unique_ptr<DeviceBuffer> many_additions_;  // of steps with more than max_additions_
};

}  // namespace baton
