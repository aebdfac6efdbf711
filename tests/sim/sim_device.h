// Simulated device: plain memory, immediate copies, and a ModelRunner over production's step
// buffers.
//
// Around its ops, the runner does the same as a production runner:
//   - It pads a decode step to a bucket.
//   - It uploads tables, positions and slot mapping, then computes only from the device's copies.
//   - It skips the rows after the last chunk that is still wanted (StepInput::wanted).
//   - Rows that compare leave the step in layer 1 (StepChunk::compares).
//
// The ops are those of sim_model.h. The runner knows sequences only through the buffers and the
// pool.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
  // `pool` holds the blocks of every group. The last block of each group is its scratch block.
  SimRunner(const KvPoolLayout& layout, std::byte* pool, const StepLimits& limits, Mutant mutant);
  ~SimRunner() override;

  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;
  bool compares_rows() const override { return true; }
  // Sets a callback for the work of the worker's other threads while a step computes its next
  // layer.
  void set_meanwhile(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }
  // Sets a callback that runs before each op of a step, with the op's index and the number of ops.
  void set_before_op(std::function<void(int32_t op, int32_t ops)> before_op) {
    before_op_ = std::move(before_op);
  }
  // Sets a predicate: true if a chunk is the first of a sequence, after a cached prefix.
  void set_begins_behind_match(std::function<bool(const StepChunk&)> begins_behind_match) {
    begins_behind_match_ = std::move(begins_behind_match);
  }

 protected:
  absl::Status Run(const StepInput& input) override;
  std::span<const float> LogitsOf(int32_t row) const override;
  std::vector<float> Changes() const override { return changes_; }

 private:
  class HeapDevice;
  class LayerFolds;
  // Values that a captured graph has fixed.
  struct Graph {
    int64_t table_width;
  };

  // Rows of a step that its ops compute.
  struct Rows {
    StepRows tokens;
    StepRows stored;  // without those that compare
    StepRows logits;
  };

  absl::Status RunStep(const StepInput& input);
  StepInput LoseWindowBlocks(StepInput input);
  void Kernels(Rows rows, int64_t table_width,
               const std::function<void(int32_t, int32_t)>& kv_written);
  void WriteRows(int32_t layer, int64_t rows);
  void WriteRow(int32_t layer, int64_t slot, const SimRows& rows);
  SimRows ReadRow(int32_t layer, int64_t slot) const;
  void CompareRows(int64_t first, int64_t rows);
  void FoldVisible(int32_t layer, int64_t rows, int64_t table_width);
  // Position of the query with which a row sees a run.
  int32_t QueryPosition(int32_t layer, int64_t row, int32_t run);
  void Upload(const StepInput& input, int32_t rows, int32_t logit_rows);
  void NoteRepairedRows(const StepInput& input);
  // Returns the buffers of the layer's group.
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
  std::map<int32_t, Graph> graphs_;  // by bucket
  std::vector<uint64_t> hidden_;     // by row
  std::vector<float> changes_;       // of the last step's rows that compare
  // For mutants:
  std::map<int32_t, int32_t> first_shift_;         // of each run that was seen, by its first block
  std::map<int32_t, int32_t> copied_from_;         // source of each block that was copied
  std::set<int64_t> repaired_rows_;                // of the step
  std::vector<std::vector<BlockId>> torn_tables_;  // made by LoseWindowBlocks
  std::function<bool(const StepChunk&)> begins_behind_match_ = [](const StepChunk&) {
    return false;
  };
  std::function<void()> meanwhile_ = [] {};
  std::function<void(int32_t op, int32_t ops)> before_op_ = [](int32_t, int32_t) {};
};

}  // namespace baton
