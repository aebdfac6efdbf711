// Device buffers for the draws of a step. Parameters go to the device, drawn tokens come back. The
// device feeds tokens drawn by the previous step to this step without the host.
//
// Two steps may be uncollected. So the host side has two slots, one for each. The device side
// exists once, because the stream orders its uses:
//   feed (reads the previous step's tokens) → clear them → … → sample → copy to the host.
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
  // REQUIRES: the device outlives this object.
  explicit DrawBuffers(Device& device) : device_(device) {}

  // Allocates for steps of up to `draws` draws and `tokens` token rows, and prepares `stream` for
  // them (Stream::Prepare). Later steps then allocate nothing, unless they have many additions.
  // Errors: those of Stream::Prepare. REQUIRES: no step was uploaded.
  absl::Status WarmUp(int64_t draws, int64_t tokens, const float* logits, int64_t vocabulary,
                      int32_t* token_ids, Stream& stream);
  // Enqueues the work that precedes a step's first op: it replaces the tokens of chunks with
  // `token_from` in `token_ids` [tokens] and uploads the draws. ResourceExhausted: no memory, and
  // nothing with an effect was enqueued. REQUIRES: the step that last used `slot` is collected.
  absl::Status Upload(const StepInput& input, int slot, int32_t* token_ids, Stream& stream);
  // Enqueues the draws that are still wanted, and the copy of the results to the host.
  void Sample(const float* logits, int64_t vocabulary, int slot, StepRows& wanted, Stream& stream);
  // Returns the results. row(i) returns logit row i for a message that names the token, or an empty
  // span if the row is gone. REQUIRES: the step has run.
  std::vector<absl::StatusOr<TokenId>> Drawn(
      int slot, const std::function<std::span<const float>(int32_t row)>& row) const;

 private:
  struct Slot {
    StagedArray<RowDraw> draws;
    StagedArray<LogitAddition> additions;
    StagedArray<int32_t> first_addition;
    StagedArray<int32_t> source;  // [token rows]; empty: no chunk has token_from
    StagedArray<TokenId> forgotten;
    StagedArray<TokenId> drawn;
  };
  // Device counterpart of Slot.
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
  // Makes room on the device for so many values. Blocks until the stream is idle if it must replace
  // the memory.
  absl::Status Grow(int64_t draws, int64_t additions, int64_t tokens, Stream& stream);

  Device& device_;
  std::array<Slot, kStepSlots> slots_;
  DeviceSide on_device_;
};

}  // namespace baton
