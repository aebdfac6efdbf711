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
  const absl::Status fits = buffers_->Check(input);
  CHECK(fits.ok()) << fits;
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
  changes_.clear();
  NoteRepairedRows(input);
  if (!decode) {
    Upload(input, tokens, logit_rows);
    Kernels({.tokens = StepRows::Tokens(input),
             .stored = StepRows::StoredTokens(input, input.wanted),
             .logits = StepRows::Logits(input)},
            buffers_->table_stride, input.kv_written);
    return Outcome(input);
  }
  const int32_t bucket = BucketFor(tokens);
  Upload(input, bucket, bucket);
  if (mutant_ == Mutant::kPaddingWritesLiveSlot) {
    for (int32_t row = tokens; row < bucket; ++row) buffers_->groups[0].slot_mapping[row] = 0;
  }
  const int64_t width = mutant_ == Mutant::kNarrowGraphTable ? widest : buffers_->table_stride;
  const auto [graph, captured] = graphs_.try_emplace(bucket, Graph{width});
  const StepRows fixed = StepRows::Fixed(bucket);
  Kernels({.tokens = fixed, .stored = fixed, .logits = fixed}, graph->second.table_width, nullptr);
  return Outcome(input);
}

void SimRunner::Upload(const StepInput& input, int32_t rows, int32_t logit_rows) {
  InputCopies copies;
  buffers_->Upload(input, rows, logit_rows, copies);
  copies.EnqueueEach(*stream_);
}

// Rows of repairs, for the mutant that writes them to the stored chunks too.
void SimRunner::NoteRepairedRows(const StepInput& input) {
  repaired_rows_.clear();
  int64_t row = 0;
  for (const StepChunk& chunk : input.chunks) {
    for (size_t i = 0; i < chunk.places.size(); ++i) {
      repaired_rows_.insert(row + static_cast<int64_t>(i));
    }
    row += static_cast<int64_t>(chunk.tokens.size());
  }
}

std::byte* SimRunner::RowAt(int32_t layer, bool value, int64_t slot) const {
  const int64_t block_size = layout_.block_size();
  return pool_ + layout_.PieceOffset(layer, value, slot / block_size) +
         slot % block_size * layout_.layout_of(layer).token_stride() *
             static_cast<int64_t>(sizeof(float));
}

void SimRunner::WriteRow(int32_t layer, int64_t slot, const SimRows& rows) {
  std::memcpy(RowAt(layer, false, slot), rows.key.data(), sizeof(SimRow));
  std::memcpy(RowAt(layer, true, slot), rows.value.data(), sizeof(SimRow));
}

SimRows SimRunner::ReadRow(int32_t layer, int64_t slot) const {
  SimRows rows;
  std::memcpy(rows.key.data(), RowAt(layer, false, slot), sizeof(SimRow));
  std::memcpy(rows.value.data(), RowAt(layer, true, slot), sizeof(SimRow));
  return rows;
}

void SimRunner::WriteRows(int32_t layer, int64_t rows) {
  const int32_t block_size = layout_.block_size();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t slot = GroupOf(layer).slot_mapping[row];
    if (slot < 0) continue;
    const SimRows written = SimRowsOf(layer, hidden_[row]);
    WriteRow(layer, slot, written);
    if (mutant_ != Mutant::kRepairedChunkCached || !repaired_rows_.contains(row)) continue;
    const auto source = copied_from_.find(static_cast<int32_t>(slot / block_size));
    if (source == copied_from_.end()) continue;
    WriteRow(layer, int64_t{source->second} * block_size + slot % block_size, written);
  }
}

// Rows [first, rows) compare. Their hidden states are those before layer 1.
void SimRunner::CompareRows(int64_t first, int64_t rows) {
  for (int64_t row = first; row < rows; ++row) {
    changes_.push_back(
        SimChange(ReadRow(1, buffers_->compared_slots[row]), SimRowsOf(1, hidden_[row])));
  }
}

int32_t SimRunner::QueryPosition(int32_t layer, int64_t row, int32_t run) {
  const VisibleRun& visible = buffers_->runs[run];
  const int64_t query = row + visible.query_offset;
  const int32_t position = buffers_->positions[query * kPositionComponents];
  if (mutant_ != Mutant::kStaleShift) return position;
  const int32_t own = buffers_->positions[row * kPositionComponents];
  const int32_t* const table =
      GroupOf(layer).block_tables + buffers_->sequence_of_token[row] * buffers_->table_stride;
  const int32_t block = table[visible.begin / layout_.block_size()];
  return own - first_shift_.try_emplace(block, own - position).first->second;
}

// Folds of the slots that rows see in one layer. All rows of the step have written theirs. Runs
// that later rows see as a whole are folded once. Consecutive rows of one sequence each see one
// slot more of their last run, so its fold continues from row to row.
class SimRunner::LayerFolds {
 public:
  LayerFolds(const SimRunner* runner, int32_t layer, int64_t table_width)
      : runner_(*runner),
        layer_(layer),
        table_width_(table_width),
        block_size_(runner->layout_.block_size()),
        group_(runner->GroupOf(layer)) {}

  // Folds of the segments of a run before the row's last one.
  const std::vector<uint64_t>& Whole(int32_t sequence, int32_t run) {
    const auto [found, is_new] = whole_.try_emplace(run);
    if (!is_new) return found->second;
    const VisibleRun& visible = runner_.buffers_->runs[run];
    Folded folded{.sequence = sequence, .run = run, .begin = visible.begin, .end = visible.begin};
    int32_t end = visible.end;
    if (runner_.mutant_ == Mutant::kGarbageSlots) {
      end = (end + block_size_ - 1) / block_size_ * block_size_;
    }
    Extend(folded, end);
    return found->second = std::move(folded.segments);
  }

  // Same for the last run of the row, whose own bounds are [begin, end).
  const std::vector<uint64_t>& Last(int32_t sequence, int32_t run, int32_t begin, int32_t end,
                                    bool framed) {
    const bool other = last_.sequence != sequence || last_.run != run;
    if (other || last_.begin != begin || end < last_.end) {
      const uint64_t neighbour = last_.segments.empty() ? 0 : last_.segments.back();
      last_ = {.sequence = sequence, .run = run, .begin = begin, .end = begin};
      if (framed && runner_.mutant_ == Mutant::kVisibleNeighbour) last_.segments = {neighbour};
    }
    Extend(last_, end);
    return last_.segments;
  }

 private:
  struct Folded {
    int32_t sequence = -1;
    int32_t run = -1;
    int32_t begin = 0;
    int32_t end = 0;  // slots up to here are folded
    std::vector<uint64_t> segments = {};
  };

  void Extend(Folded& folded, int32_t end) const {
    const int32_t origin = runner_.buffers_->runs[folded.run].tile_origin;
    const int32_t* const table =
        group_.block_tables + folded.sequence * runner_.buffers_->table_stride;
    for (; folded.end < end; ++folded.end) {
      const bool begins = folded.end > folded.begin && (folded.end - origin) % kSimSegment == 0;
      if (folded.segments.empty() || begins) folded.segments.push_back(0);
      const int64_t entry = std::min<int64_t>(folded.end / block_size_, table_width_ - 1);
      const int64_t slot = int64_t{table[entry]} * block_size_ + folded.end % block_size_;
      uint64_t& fold = folded.segments.back();
      fold = SimFold(fold, runner_.ReadRow(layer_, slot));
    }
  }

  const SimRunner& runner_;
  const int32_t layer_;
  const int64_t table_width_;
  const int32_t block_size_;
  const StepBuffers::Group& group_;
  std::map<int32_t, std::vector<uint64_t>> whole_;  // by run
  Folded last_;
};

void SimRunner::FoldVisible(int32_t layer, int64_t rows, int64_t table_width) {
  const StepBuffers::Group& group = GroupOf(layer);
  LayerFolds folds(this, layer, table_width);
  for (int64_t row = 0; row < rows; ++row) {
    const RowRuns& sees = group.row_runs[row];
    hidden_[row] = 0;
    if (sees.run_count == 0) continue;  // padding
    const int32_t sequence = buffers_->sequence_of_token[row];
    const int32_t last = sees.first_run + sees.run_count - 1;
    SimSegments seen;
    for (int32_t run = sees.first_run; run < last; ++run) {
      const int32_t query = QueryPosition(layer, row, run);
      for (const uint64_t fold : folds.Whole(sequence, run)) seen.Add(query, fold);
    }
    const int32_t query = QueryPosition(layer, row, last);
    const bool framed = sees.run_count > 1;
    for (const uint64_t fold : folds.Last(sequence, last, sees.last_begin, sees.last_end, framed)) {
      seen.Add(query, fold);
    }
    hidden_[row] = seen.Result();
  }
}

void SimRunner::Kernels(Rows rows, int64_t table_width,
                        const std::function<void(int32_t, int32_t)>& kv_written) {
  constexpr int32_t kOps = 2 * kSimLayers + 1;
  int32_t op = 0;
  const auto next_op = [&](StepRows& of) {
    before_op_(op++, kOps);
    return of.Count();
  };
  hidden_.resize(static_cast<size_t>(rows.tokens.Count()));
  for (size_t row = 0; row < hidden_.size(); ++row) {
    hidden_[row] =
        SimEmbedding(buffers_->token_ids[row], buffers_->positions[row * kPositionComponents]);
  }
  for (int32_t layer = 0; layer < kSimLayers; ++layer) {
    int64_t computed = next_op(rows.tokens);
    if (layer == 1 && rows.stored.most() < rows.tokens.most()) {
      CompareRows(rows.stored.most(), computed);
      changes_.resize(static_cast<size_t>(rows.tokens.most() - rows.stored.most()));
      rows.tokens = rows.stored;
      computed = rows.tokens.Count();
    }
    WriteRows(layer, computed);
    if (kv_written && rows.tokens.Count() > 0) {
      kv_written(layer + 1, rows.tokens.chunks());
      meanwhile_();
    }
    FoldVisible(layer, next_op(rows.tokens), table_width);
  }
  const int64_t wanted_logits = next_op(rows.logits);
  for (int64_t i = 0; i < wanted_logits; ++i) {
    SimLogits(hidden_[buffers_->logit_indices[i]],
              {buffers_->logits + i * kSimVocabulary, kSimVocabulary});
  }
}

absl::Status SimRunner::CopyBlocks(std::span<const BlockCopy> copies) {
  if (mutant_ == Mutant::kForkWithoutCopy) return absl::OkStatus();
  const int64_t block_size = layout_.block_size();
  for (const BlockCopy& copy : copies) {
    copied_from_[copy.to.value()] = copy.from.value();
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
