#include "model/step_buffers.h"

#include <cstring>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kNotStored = -1;  // KvWriteArgs::slot_mapping

// Lays buffers out one behind the other: first to learn the size, then to hand out addresses.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  template <typename T>
  void Take(T*& pointer, int64_t count) {
    pointer = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + next_);
    next_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  void Take(Activations& activations, int64_t rows, int64_t cols) {
    Take(activations.f32, rows * cols);
    Take(activations.q8, rows * cols);
    Take(activations.scale, rows * ((cols + kQuantGroup - 1) / kQuantGroup));
    Take(activations.scaled_sum, rows * ((cols + kQuantGroup - 1) / kQuantGroup));
  }
  size_t bytes() const { return next_; }

 private:
  static constexpr int64_t kQuantGroup = 32;
  std::byte* base_;
  size_t next_ = 0;
};

size_t LayOut(StepBuffers& b, const LlamaConfig& config, const StepLimits& limits,
              std::byte* base) {
  const int64_t tokens = limits.max_tokens;
  const int64_t heads = int64_t{config.query_heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  const int64_t half = static_cast<int64_t>(config.rope_frequencies.size());
  Arena arena(base);
  arena.Take(b.token_ids, tokens);
  arena.Take(b.positions, tokens * kPositionComponents);
  arena.Take(b.slot_mapping, tokens);
  arena.Take(b.sequence_of_token, tokens);
  arena.Take(b.visible, tokens * kMaxVisibleRanges);
  arena.Take(b.block_tables, limits.max_sequences * b.table_stride);
  arena.Take(b.first_block, limits.max_sequences);
  arena.Take(b.logit_indices, limits.max_logit_rows);
  b.input_bytes = arena.bytes();
  arena.Take(b.rope_frequencies, half);
  arena.Take(b.cosines, tokens * half);
  arena.Take(b.sines, tokens * half);
  arena.Take(b.hidden, tokens * config.hidden);
  arena.Take(b.normalized, tokens, config.hidden);
  arena.Take(b.qkv, tokens * (heads + 2 * kv));
  arena.Take(b.attention, tokens, heads);
  arena.Take(b.gate_up, tokens * 2 * config.feed_forward);
  arena.Take(b.activated, tokens, config.feed_forward);
  arena.Take(b.last_hidden, limits.max_logit_rows * int64_t{config.hidden});
  arena.Take(b.last_normalized, limits.max_logit_rows, config.hidden);
  arena.Take(b.logits, limits.max_logit_rows * int64_t{config.vocabulary});
  return arena.bytes();
}

template <typename T>
void CopyInput(Stream& stream, T* device, const std::vector<T>& host, StagingSlot& slot) {
  const size_t bytes = host.size() * sizeof(T);
  if (bytes > 0) stream.Copy(device, slot.Put(host.data(), bytes), bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepBuffers>> StepBuffers::Create(const LlamaConfig& config,
                                                                 const KvLayout& layout,
                                                                 const StepLimits& limits,
                                                                 Device& device) {
  std::unique_ptr<StepBuffers> buffers(new StepBuffers);
  buffers->table_stride =
      (int64_t{limits.max_context} + layout.block_size() - 1) / layout.block_size();
  buffers->block_size_log2_ = layout.block_size_log2();
  buffers->scratch_slot_ = (layout.num_blocks() - 1) * layout.block_size();
  const size_t bytes = LayOut(*buffers, config, limits, nullptr);
  ASSIGN_OR_RETURN(buffers->memory_, device.Allocate(bytes, "step buffers"));
  LayOut(*buffers, config, limits, buffers->memory_->data());
  ASSIGN_OR_RETURN(buffers->staging_, device.AllocateStaging(kStepSlots * buffers->input_bytes,
                                                             "step inputs on their way"));
  for (int slot = 0; slot < kStepSlots; ++slot) {
    buffers->slots_[slot] = StagingSlot(
        {buffers->staging_->data() + slot * buffers->input_bytes, buffers->input_bytes});
  }
  std::memcpy(buffers->rope_frequencies, config.rope_frequencies.data(),
              config.rope_frequencies.size() * sizeof(double));
  buffers->mirror_ = std::make_unique<BlockTableMirror>(buffers->block_tables, limits.max_sequences,
                                                        buffers->table_stride);
  return buffers;
}

void StepBuffers::FillChunk(const StepChunk& chunk, int32_t sequence) {
  const int32_t mask = (1 << block_size_log2_) - 1;
  const int32_t count = static_cast<int32_t>(chunk.tokens.size());
  const int32_t first_row = static_cast<int32_t>(host_.token_ids.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t slot = chunk.begin_slot + i;
    const int64_t block = chunk.block_table[slot >> block_size_log2_].value();
    host_.token_ids.push_back(chunk.tokens[i]);
    host_.positions.insert(host_.positions.end(), kPositionComponents, chunk.begin_position + i);
    host_.slot_mapping.push_back((block << block_size_log2_) + (slot & mask));
    host_.sequence_of_token.push_back(sequence);
    host_.visible.push_back({0, slot + 1});
    host_.visible.resize(host_.visible.size() + kMaxVisibleRanges - 1);
  }
  for (int32_t i = count - chunk.logit_rows; i < count; ++i) {
    host_.logit_indices.push_back(first_row + i);
  }
  host_.first_block.push_back(chunk.block_table[0].value());
  mirror_->SetRow(sequence, chunk.block_table);
}

void StepBuffers::FillPadding(int32_t rows, int32_t logit_rows) {
  const size_t filled = host_.token_ids.size();
  CHECK_LE(filled, static_cast<size_t>(rows));
  CHECK_LE(host_.logit_indices.size(), static_cast<size_t>(logit_rows));
  host_.token_ids.resize(rows, 0);
  host_.positions.resize(static_cast<size_t>(rows) * kPositionComponents, 0);
  // Each to a slot of its own: two threads may store two of them.
  const int64_t block_size = int64_t{1} << block_size_log2_;
  for (int64_t row = static_cast<int64_t>(filled); row < rows; ++row) {
    const int64_t offset = row - static_cast<int64_t>(filled);
    host_.slot_mapping.push_back(offset < block_size ? scratch_slot_ + offset : kNotStored);
  }
  // Padding belongs to no sequence of its own: it follows the last one and sees nothing.
  host_.sequence_of_token.resize(rows, filled == 0 ? 0 : host_.sequence_of_token.back());
  host_.visible.resize(static_cast<size_t>(rows) * kMaxVisibleRanges);
  host_.logit_indices.resize(logit_rows, 0);
}

void StepBuffers::Upload(const StepInput& input, int32_t rows, int32_t logit_rows, Stream& stream,
                         int slot_index) {
  StagingSlot& slot = slots_[slot_index];
  slot.Clear();
  host_.token_ids.clear();
  host_.positions.clear();
  host_.slot_mapping.clear();
  host_.sequence_of_token.clear();
  host_.visible.clear();
  host_.first_block.clear();
  host_.logit_indices.clear();
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    FillChunk(input.chunks[i], static_cast<int32_t>(i));
  }
  FillPadding(rows, logit_rows);
  CopyInput(stream, token_ids, host_.token_ids, slot);
  CopyInput(stream, positions, host_.positions, slot);
  CopyInput(stream, slot_mapping, host_.slot_mapping, slot);
  CopyInput(stream, sequence_of_token, host_.sequence_of_token, slot);
  CopyInput(stream, visible, host_.visible, slot);
  CopyInput(stream, first_block, host_.first_block, slot);
  CopyInput(stream, logit_indices, host_.logit_indices, slot);
  mirror_->Upload(stream, slot);
}

}  // namespace baton
