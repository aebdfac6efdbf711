// A step's draws on the device: their parameters go up, drawn tokens come back, and tokens that the
// step before drew are fed to this one without the host.
//
// Two steps may be uncollected. The host's side is there twice, one slot for each; the device's
// side once, because the stream orders its uses:
//   feed (reads the tokens of the step before) → forget them → … → sample → copy to the host.
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
#include "model/model_runner.h"
#include "model/staged_array.h"
#include "model/staging_slot.h"
#include "model/step_rows.h"

namespace baton {

class DrawBuffers {
 public:
  // The device outlives this.
  explicit DrawBuffers(Device& device) : device_(device) {}

  // Enqueues what a step needs before its first op: replaces the tokens of chunks with `token_from`
  // in `token_ids` [tokens], and uploads the draws. ResourceExhausted: no memory, and nothing that
  // matters was enqueued. REQUIRES: the step that last had `slot` is collected.
  absl::Status Upload(const StepInput& input, int slot, int32_t* token_ids, Stream& stream);
  // Enqueues the draws, those of `wanted` alone, and the copy of their results to the host.
  void Sample(const float* logits, int64_t vocabulary, int slot, StepRows& wanted, Stream& stream);
  // The results. `row` returns the logits of a row, for a message that names the token, or nothing
  // where they are gone. REQUIRES: the step has run.
  std::vector<absl::StatusOr<TokenId>> Drawn(
      int slot, const std::function<std::span<const float>(int32_t row)>& row) const;

 private:
  struct Slot {
    StagedArray<RowDraw> draws;
    StagedArray<LogitAddition> additions;
    StagedArray<int32_t> first_addition;
    StagedArray<int32_t> source;  // of token rows; empty: no chunk has token_from
    StagedArray<TokenId> forgotten;
    StagedArray<TokenId> drawn;
  };
  // What Slot has, on the device.
  struct DeviceSide {
    std::unique_ptr<DeviceBuffer> memory;
    int64_t max_draws = 0;
    int64_t max_additions = 0;
    int64_t max_tokens = 0;
    RowDraw* draws = nullptr;
    LogitAddition* additions = nullptr;
    int32_t* first_addition = nullptr;
    int32_t* source = nullptr;
    TokenId* drawn = nullptr;
  };

  absl::Status Fill(const StepInput& input, Slot& slot);
  absl::Status FillSources(const StepInput& input, int64_t tokens, Slot& slot);
  // Makes room on the device; waits for the stream where that takes other memory.
  absl::Status Grow(const Slot& slot, Stream& stream);

  Device& device_;
  std::array<Slot, kStepSlots> slots_;
  DeviceSide on_device_;
};

}  // namespace baton
