#include "tests/sim/sim_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "tests/model/immediate_stream.h"

namespace baton {
namespace {

class HeapBuffer final : public DeviceBuffer {
 public:
  explicit HeapBuffer(size_t bytes) : memory_(bytes / 8 + 8) {}
  std::byte* data() const override {
    return reinterpret_cast<std::byte*>(const_cast<uint64_t*>(memory_.data()));
  }
  size_t size() const override { return memory_.size() * 8; }

 private:
  std::vector<uint64_t> memory_;
};

DecoderConfig MakeConfig() {
  return {.hidden = 1,
          .query_heads = 1,
          .kv_heads = 1,
          .head_dim = kSimHeadDim,
          .feed_forward = 1,
          .vocabulary = kSimVocabulary,
          .rope_frequencies = {1.0}};
}

// Returns the smallest bucket for this number of decode rows.
int32_t BucketFor(int32_t rows) { return rows <= 2 ? 2 : (rows + 3) / 4 * 4; }

}  // namespace

class SimRunner::HeapDevice final : public Device {
 public:
  std::string Description() const override { return "simulated"; }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes, std::string_view) override {
    return std::make_unique<HeapBuffer>(bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t, std::string_view) override {
    return absl::UnimplementedError("simulated memory is not shared");
  }
  size_t allocated_bytes() const override { return 0; }
  std::unique_ptr<Stream> CreateStream() override { return std::make_unique<ImmediateStream>(); }
  const Ops& ops() const override { LOG(FATAL) << "the simulated device has no ops"; }
};

SimRunner::SimRunner(const KvPoolLayout& layout, std::byte* pool, const StepLimits& limits,
                     Mutant mutant)
    : layout_(layout),
      pool_(pool),
      mutant_(mutant),
      device_(std::make_unique<HeapDevice>()),
      buffers_(*StepBuffers::Create(MakeConfig(), layout_, limits, *device_)),
      stream_(device_->CreateStream()) {}

SimRunner::~SimRunner() = default;

namespace {

// Shifts positions, as if a prefill after a cached prefix began one position too late.
StepInput ShiftPositions(StepInput input) {
  for (StepChunk& chunk : input.chunks) {
    if (chunk.begin_slot > 0 && chunk.tokens.size() > 1) ++chunk.begin_position;
  }
  return input;
}

absl::Status Outcome(const StepInput& input) {
  if (!input.wanted || input.wanted() > 0) return absl::OkStatus();
  return absl::CancelledError("the step was abandoned");
}

}  // namespace

absl::Status SimRunner::Run(const StepInput& input) {
  if (mutant_ == Mutant::kRopeOffByOne) return RunStep(ShiftPositions(input));
  const bool loses = mutant_ == Mutant::kFreedAtSubmit || mutant_ == Mutant::kMatchAtTornBoundary;
  return RunStep(loses && layout_.groups() > 1 ? LoseWindowBlocks(input) : input);
}

// Replaces some window blocks that the step reads by the scratch block. These are the blocks that
// leave the window in this step, or the first block that the match should have had.
StepInput SimRunner::LoseWindowBlocks(StepInput input) {
  torn_tables_.clear();
  const int32_t block_size = layout_.block_size();
  const int32_t window = layout_.group(1).group().window;
  for (StepChunk& chunk : input.chunks) {
    std::vector<BlockId>& table =
        torn_tables_.emplace_back(chunk.window_tables[0].begin(), chunk.window_tables[0].end());
    const auto tokens = static_cast<int32_t>(chunk.tokens.size());
    int32_t begin = 0;
    int32_t end = (chunk.begin_slot + tokens - window + 1) / block_size;
    if (mutant_ == Mutant::kMatchAtTornBoundary) {
      begin = std::max(0, chunk.begin_slot - window + 1) / block_size;
      end = begins_behind_match_(chunk) ? begin + 1 : begin;
    }
    end = std::min(end, chunk.begin_slot / block_size);  // leaves out blocks that the step writes
    for (int32_t block = begin; block < end; ++block) table[block] = kNoBlock;
    chunk.window_tables[0] = table;
  }
  return input;
}

absl::Status SimRunner::RunStep(const StepInput& input) {
  int32_t tokens = 0;
  int32_t logit_rows = 0;
  int64_t widest = 0;
  bool decode = true;
  for (const StepChunk& chunk : input.chunks) {
    tokens += static_cast<int32_t>(chunk.tokens.size());
    logit_rows += chunk.logit_rows;
    widest = std::max(widest, static_cast<int64_t>(chunk.block_table.size()));
    decode = decode && chunk.tokens.size() == 1 && chunk.logit_rows == 1;
  }
  if (!decode) {
    buffers_->Upload(input, tokens, logit_rows, *stream_);
    Kernels(StepRows::Tokens(input), StepRows::Logits(input), buffers_->table_stride,
            input.kv_written);
    return Outcome(input);
  }
  const int32_t bucket = BucketFor(tokens);
  buffers_->Upload(input, bucket, bucket, *stream_);
  if (mutant_ == Mutant::kPaddingWritesLiveSlot) {
    for (int32_t row = tokens; row < bucket; ++row) buffers_->groups[0].slot_mapping[row] = 0;
  }
  const int64_t width = mutant_ == Mutant::kNarrowGraphTable ? widest : buffers_->table_stride;
  const auto [graph, captured] = graphs_.try_emplace(bucket, Graph{width});
  Kernels(StepRows::Fixed(bucket), StepRows::Fixed(bucket), graph->second.table_width, nullptr);
  return Outcome(input);
}

std::byte* SimRunner::RowAt(int32_t layer, bool value, int64_t slot) const {
  const int64_t block_size = layout_.block_size();
  return pool_ + layout_.PieceOffset(layer, value, slot / block_size) +
         slot % block_size * layout_.layout_of(layer).token_stride() *
             static_cast<int64_t>(sizeof(float));
}

void SimRunner::WriteRows(int32_t layer, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t slot = GroupOf(layer).slot_mapping[row];
    if (slot < 0) continue;
    const SimRows written = SimRowsOf(layer, hidden_[row]);
    std::memcpy(RowAt(layer, false, slot), written.key.data(), sizeof(SimRow));
    std::memcpy(RowAt(layer, true, slot), written.value.data(), sizeof(SimRow));
  }
}

// Consecutive rows of one sequence each see one slot more. If a fold begins where the previous
// row's fold began, it continues from that row.
void SimRunner::FoldVisible(int32_t layer, int64_t rows, int64_t table_width) {
  const StepBuffers::Group& group = GroupOf(layer);
  const int32_t block_size = layout_.block_size();
  int32_t sequence = -1;
  int32_t begin = 0;
  int32_t folded = 0;
  uint64_t fold = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const RowRuns& sees = group.row_runs[row];
    if (buffers_->sequence_of_token[row] != sequence || sees.last_begin != begin ||
        sees.last_end < folded) {
      sequence = buffers_->sequence_of_token[row];
      begin = folded = sees.last_begin;
      fold = 0;
    }
    const int32_t* const table = group.block_tables + sequence * buffers_->table_stride;
    for (; folded < sees.last_end; ++folded) {
      const int64_t entry = std::min<int64_t>(folded / block_size, table_width - 1);
      const int64_t slot = int64_t{table[entry]} * block_size + folded % block_size;
      SimRows read;
      std::memcpy(read.key.data(), RowAt(layer, false, slot), sizeof(SimRow));
      std::memcpy(read.value.data(), RowAt(layer, true, slot), sizeof(SimRow));
      fold = SimFold(fold, read);
    }
    hidden_[row] = fold;
  }
}

void SimRunner::Kernels(StepRows rows, StepRows logit_rows, int64_t table_width,
                        const std::function<void(int32_t, int32_t)>& kv_written) {
  constexpr int32_t kOps = 2 * kSimLayers + 1;
  int32_t op = 0;
  const auto next_op = [&](StepRows& of) {
    before_op_(op++, kOps);
    return of.Count();
  };
  hidden_.resize(static_cast<size_t>(rows.Count()));
  for (size_t row = 0; row < hidden_.size(); ++row) {
    hidden_[row] =
        SimEmbedding(buffers_->token_ids[row], buffers_->positions[row * kPositionComponents]);
  }
  for (int32_t layer = 0; layer < kSimLayers; ++layer) {
    WriteRows(layer, next_op(rows));
    if (kv_written && rows.Count() > 0) {
      kv_written(layer + 1, rows.chunks());
      meanwhile_();
    }
    FoldVisible(layer, next_op(rows), table_width);
  }
  const int64_t wanted_logits = next_op(logit_rows);
  for (int64_t i = 0; i < wanted_logits; ++i) {
    SimLogits(hidden_[buffers_->logit_indices[i]],
              {buffers_->logits + i * kSimVocabulary, kSimVocabulary});
  }
}

absl::Status SimRunner::CopyBlocks(std::span<const BlockCopy> copies) {
  if (mutant_ == Mutant::kForkWithoutCopy) return absl::OkStatus();
  const int64_t block_size = layout_.block_size();
  for (const BlockCopy& copy : copies) {
    for (int32_t layer = 0; layer < kSimLayers; ++layer) {
      if (!layout_.IsOf(copy.group, layer)) continue;
      for (const bool value : {false, true}) {
        std::memcpy(RowAt(layer, value, copy.to.value() * block_size),
                    RowAt(layer, value, copy.from.value() * block_size),
                    static_cast<size_t>(copy.tokens) * sizeof(SimRow));
      }
    }
  }
  return absl::OkStatus();
}

std::span<const float> SimRunner::LogitsOf(int32_t row) const {
  return {buffers_->logits + int64_t{row} * kSimVocabulary, kSimVocabulary};
}

}  // namespace baton
