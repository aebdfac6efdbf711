// A simulated device: plain memory, copies that happen at once, and a ModelRunner over production's
// step buffers.
//
// The runner does what a production runner does around its ops (pad a decode step to a bucket,
// upload tables, positions and slot mapping, then run from the device's copies alone, and leave out
// what nobody wants any more); the ops are those of sim_model.h. Nothing but the buffers and the
// pool tells it what a sequence is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "model/inline_runner.h"
#include "model/step_buffers.h"
#include "model/step_rows.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_model.h"

namespace baton {

class SimRunner final : public InlineRunner {
 public:
  // `pool` holds every group's blocks, the last of which is the group's scratch block.
  SimRunner(const KvPoolLayout& layout, std::byte* pool, const StepLimits& limits, Mutant mutant);
  ~SimRunner() override;

  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;
  // What other threads of the worker do while a step computes its next layer.
  void set_meanwhile(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }
  // Told before each of a step's ops which it is, of how many.
  void set_before_op(std::function<void(int32_t op, int32_t ops)> before_op) {
    before_op_ = std::move(before_op);
  }
  // Whether a chunk is the first of a sequence, behind a cached prefix.
  void set_begins_behind_match(std::function<bool(const StepChunk&)> begins_behind_match) {
    begins_behind_match_ = std::move(begins_behind_match);
  }

 protected:
  absl::Status Run(const StepInput& input) override;
  std::span<const float> LogitsOf(int32_t row) const override;

 private:
  class HeapDevice;
  // What a captured graph has baked in.
  struct Graph {
    int64_t table_width;
  };

  absl::Status RunStep(const StepInput& input);
  StepInput LoseWindowBlocks(StepInput input);
  void Kernels(StepRows rows, StepRows logit_rows, int64_t table_width,
               const std::function<void(int32_t, int32_t)>& kv_written);
  void WriteRows(int32_t layer, int64_t rows);
  void FoldVisible(int32_t layer, int64_t rows, int64_t table_width);
  // Of the layer's group.
  StepBuffers::Group& GroupOf(int32_t layer) const {
    return buffers_->groups[static_cast<size_t>(layout_.place(layer).group)];
  }
  std::byte* RowAt(int32_t layer, bool value, int64_t slot) const;

  const KvPoolLayout layout_;
  std::byte* const pool_;
  const Mutant mutant_;
  const std::unique_ptr<HeapDevice> device_;
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<Stream> stream_;
  std::map<int32_t, Graph> graphs_;                // by bucket
  std::vector<uint64_t> hidden_;                   // of every row
  std::vector<std::vector<BlockId>> torn_tables_;  // of LoseWindowBlocks
  std::function<bool(const StepChunk&)> begins_behind_match_ = [](const StepChunk&) {
    return false;
  };
  std::function<void()> meanwhile_ = [] {};
  std::function<void(int32_t op, int32_t ops)> before_op_ = [](int32_t, int32_t) {};
};

}  // namespace baton
