#include "model/step_buffers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "model/device_writer.h"
#include "model/shared_prefixes.h"
#include "model/shift_groups.h"

namespace baton {
namespace {

constexpr size_t kStepAlignment = 64;
constexpr int64_t kNotStored = -1;  // RopeKvWriteArgs::slot_mapping
constexpr int32_t kFromTable = -1;  // EmbedTokensArgs::embedding_rows

static_assert(std::tuple_size_v<RowPosition> == kPositionComponents);

// Places buffers one behind the other. The first pass, without a base, measures the size; the
// second pass assigns addresses.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  template <typename T>
  void Take(T*& pointer, int64_t count) {
    pointer = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + next_);
    next_ += (static_cast<size_t>(count) * sizeof(T) + kStepAlignment - 1) / kStepAlignment *
             kStepAlignment;
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

size_t LayOut(StepBuffers& b, const DecoderConfig& config, const StepLimits& limits,
              std::byte* base) {
  const int64_t tokens = limits.max_tokens;
  const int64_t sequences = int64_t{limits.max_sequences} + limits.max_parts;
  const int64_t query_rows = tokens + limits.max_shifted_queries;
  const int64_t heads = int64_t{config.query_heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  const int64_t half = static_cast<int64_t>(config.rope_frequencies.size());
  Arena arena(base);
  arena.Take(b.token_ids, tokens);
  arena.Take(b.positions, query_rows * kPositionComponents);
  arena.Take(b.sequence_of_token, tokens);
  arena.Take(b.runs, sequences + limits.max_extra_runs);
  arena.Take(b.shifted_rows, limits.max_shifted_queries);
  arena.Take(b.embedding_rows, limits.max_embeddings > 0 ? tokens : 0);
  arena.Take(b.embeddings, int64_t{limits.max_embeddings} * config.hidden);
  arena.Take(b.compared_slots, limits.max_compared_rows);
  for (StepBuffers::Group& group : b.groups) {
    arena.Take(group.slot_mapping, tokens);
    arena.Take(group.row_runs, tokens);
    arena.Take(group.block_tables, sequences * b.table_stride);
    arena.Take(group.first_block, sequences);
    arena.Take(group.shared_segments, limits.shares_prefixes ? tokens : 0);
    if (!limits.shares_prefixes) group.shared_segments = nullptr;
  }
  arena.Take(b.logit_indices, limits.max_logit_rows);
  b.input_bytes = arena.bytes() + kStepAlignment;  // positions are staged in two parts
  arena.Take(b.rope_frequencies, half);
  arena.Take(b.cosines, query_rows * half);
  arena.Take(b.sines, query_rows * half);
  arena.Take(b.hidden, tokens * config.hidden);
  arena.Take(b.normalized, tokens, config.hidden);
  arena.Take(b.qkv, query_rows * (heads + 2 * kv));
  arena.Take(b.attention, tokens, heads);
  arena.Take(b.gate_up, tokens * 2 * config.feed_forward);
  arena.Take(b.activated, tokens, config.feed_forward);
  b.all_attention = b.attention;
  b.all_activated = b.activated;
  if (config.all_query_heads > 0) {
    arena.Take(b.all_attention, tokens, int64_t{config.all_query_heads} * config.head_dim);
    arena.Take(b.all_activated, tokens, config.all_feed_forward);
  }
  arena.Take(b.last_hidden, limits.max_logit_rows * int64_t{config.hidden});
  arena.Take(b.last_normalized, limits.max_logit_rows, config.hidden);
  arena.Take(b.logits, limits.max_logit_rows * int64_t{config.vocabulary});
  arena.Take(b.changes, limits.max_compared_rows * int64_t{2} * config.kv_heads);
  b.all_changes = b.changes;
  if (config.all_kv_heads > 0) {
    arena.Take(b.all_changes, limits.max_compared_rows * int64_t{2} * config.all_kv_heads);
  }
  return arena.bytes();
}

RowPosition PositionOf(const StepChunk& chunk, int32_t token) {
  if (!chunk.positions.empty()) return chunk.positions[token];
  RowPosition position;
  position.fill(chunk.begin_position + token);
  return position;
}

template <typename T>
void CopyInput(InputCopies& copies, T* device, const std::vector<T>& host, StagingSlot& slot) {
  const size_t bytes = host.size() * sizeof(T);
  if (bytes > 0) copies.Add(device, slot.Put(host.data(), bytes), bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepBuffers>> StepBuffers::Create(const DecoderConfig& config,
                                                                 const KvPoolLayout& layout,
                                                                 const StepLimits& limits,
                                                                 Device& device) {
  std::unique_ptr<StepBuffers> buffers(new StepBuffers);
  buffers->table_stride =
      (int64_t{limits.max_context} + layout.block_size() - 1) / layout.block_size();
  buffers->block_size_log2_ = layout.group(0).block_size_log2();
  buffers->groups.resize(static_cast<size_t>(layout.groups()));
  buffers->limits_ = limits;
  buffers->hidden_size_ = config.hidden;
  buffers->first_shifted_query = limits.max_tokens;
  const size_t bytes = LayOut(*buffers, config, limits, nullptr);
  ASSIGN_OR_RETURN(buffers->memory_, device.Allocate(bytes, "step buffers"));
  LayOut(*buffers, config, limits, buffers->memory_->data());
  ASSIGN_OR_RETURN(buffers->staging_, device.AllocateStaging(kStepSlots * buffers->input_bytes,
                                                             "staging buffer for step inputs"));
  for (int slot = 0; slot < kStepSlots; ++slot) {
    buffers->slots_[slot] = StagingSlot(
        {buffers->staging_->data() + slot * buffers->input_bytes, buffers->input_bytes});
  }
  const size_t frequency_bytes = config.rope_frequencies.size() * sizeof(double);
  RETURN_IF_ERROR(DeviceWriter(device).Write(
      buffers->rope_frequencies, frequency_bytes, [&](std::byte* memory) {
        std::memcpy(memory, config.rope_frequencies.data(), frequency_bytes);
      }));
  for (int32_t at = 0; at < layout.groups(); ++at) {
    const KvLayout& group = layout.group(at);
    const BlockId scratch(static_cast<int32_t>(group.num_blocks() - 1));
    buffers->host_groups_.push_back(
        {.window = group.group().window,
         .scratch = scratch,
         .tables = BlockTableMirror(buffers->groups[at].block_tables,
                                    limits.max_sequences + limits.max_parts, buffers->table_stride,
                                    scratch)});
  }
  return buffers;
}

int64_t StepBuffers::uploaded_entries() const {
  int64_t entries = 0;
  for (const HostGroup& group : host_groups_) entries += group.tables.uploaded_entries();
  return entries;
}

int64_t StepBuffers::table_uploads() const {
  int64_t uploads = 0;
  for (const HostGroup& group : host_groups_) uploads += group.tables.uploads();
  return uploads;
}

void StepBuffers::FillChunk(const StepChunk& chunk, int32_t sequence) {
  const int32_t count = static_cast<int32_t>(chunk.tokens.size());
  const int32_t first_row = static_cast<int32_t>(host_.token_ids.size());
  for (int32_t i = 0; i < count; ++i) {
    const RowPosition position = PositionOf(chunk, i);
    host_.token_ids.push_back(chunk.tokens[i]);
    host_.positions.insert(host_.positions.end(), position.begin(), position.end());
    host_.sequence_of_token.push_back(sequence);
  }
  for (const ShiftGroup& rows : ShiftGroupsOf(chunk)) {
    const RowRuns runs = FillRuns(chunk, rows, first_row);
    if (!chunk.places.empty()) FillPlaces(chunk, rows, runs);
    for (size_t group = 0; chunk.places.empty() && group < groups.size(); ++group) {
      FillGroup(chunk, static_cast<int32_t>(group), runs);
    }
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    FillTable(chunk, sequence, static_cast<int32_t>(group));
  }
  FillEmbeddings(chunk);
  for (int32_t i = count - chunk.logit_rows; i < count; ++i) {
    host_.logit_indices.push_back(first_row + i);
  }
}

// Fills the rows of one KV group. The tokens share the chunk's runs. Each token has its own end of
// the last run and, in a group with a window, its own begin. `runs` holds the begin without a
// window.
void StepBuffers::FillGroup(const StepChunk& chunk, int32_t at, RowRuns runs) {
  HostGroup& group = host_groups_[at];
  const std::span<const BlockId> table = chunk.table(at);
  const int32_t end = chunk.begin_slot + static_cast<int32_t>(chunk.tokens.size());
  CHECK_LE(end, static_cast<int64_t>(table.size()) << block_size_log2_) << "KV group " << at;
  for (int32_t slot = chunk.begin_slot; slot < end; ++slot) {
    group.slot_mapping.push_back(SlotInPool(table, slot));
    runs.last_end = slot + 1;
    if (group.window > 0) runs.last_begin = std::max(0, runs.last_end - group.window);
    group.row_runs.push_back(runs);
  }
}

// Finds the rows that share the beginning of their sequences.
void StepBuffers::FillShared(const StepInput& input, int32_t at) {
  HostGroup& group = host_groups_[at];
  std::vector<ChunkPrefix> prefixes;
  prefixes.reserve(input.chunks.size());
  for (const StepChunk& chunk : input.chunks) {
    const auto rows = static_cast<int32_t>(chunk.tokens.size());
    // A sliding window hides the first slots of a sequence once it is longer than the window.
    const bool sees_first =
        chunk.runs.empty() && (group.window == 0 || chunk.begin_slot + rows <= group.window);
    prefixes.push_back(
        {.table = chunk.table(at), .rows = rows, .slots = sees_first ? chunk.begin_slot : 0});
  }
  group.shared_segments = SharedSegmentsOf(prefixes, 1 << block_size_log2_);
}

// Fills rows with places. They are in models with one KV group only.
void StepBuffers::FillPlaces(const StepChunk& chunk, const ShiftGroup& rows, RowRuns runs) {
  HostGroup& group = host_groups_[0];
  for (int32_t row = rows.first_row; row < rows.first_row + rows.rows; ++row) {
    const RowPlace& place = chunk.places[row];
    group.slot_mapping.push_back(SlotInPool(chunk.block_table, place.slot));
    runs.run_count = place.run + 1;
    runs.last_begin = chunk.runs[place.run].begin;
    runs.last_end = place.slot + 1;
    group.row_runs.push_back(runs);
  }
  if (!chunk.compares) return;
  // Rows that compare come last. They store nothing.
  const auto first = static_cast<std::ptrdiff_t>(group.slot_mapping.size()) - rows.rows;
  host_.compared_slots.resize(static_cast<size_t>(first), kNotStored);
  host_.compared_slots.insert(host_.compared_slots.end(), group.slot_mapping.begin() + first,
                              group.slot_mapping.end());
  std::fill(group.slot_mapping.begin() + first, group.slot_mapping.end(), kNotStored);
}

int64_t StepBuffers::SlotInPool(std::span<const BlockId> table, int32_t slot) const {
  const BlockId block = table[slot >> block_size_log2_];
  CHECK_NE(block, kNoBlock) << "slot " << slot << " has no block";
  return (int64_t{block.value()} << block_size_log2_) + (slot & ((1 << block_size_log2_) - 1));
}

void StepBuffers::FillTable(const StepChunk& chunk, int32_t sequence, int32_t at) {
  HostGroup& group = host_groups_[at];
  const std::span<const BlockId> table = chunk.table(at);
  group.first_block.push_back(table[0] == kNoBlock ? group.scratch.value() : table[0].value());
  group.tables.SetRow(sequence, table);
}

// Fills the runs and shifted queries of some rows of a chunk, whose rows begin at `first_row`.
// Returns the fields of RowRuns that these rows share.
RowRuns StepBuffers::FillRuns(const StepChunk& chunk, const ShiftGroup& rows, int32_t first_row) {
  const auto first_run = static_cast<int32_t>(host_.runs.size());
  const int32_t begin_row = first_row + rows.first_row;
  const auto first_query =
      static_cast<int32_t>(first_shifted_query + static_cast<int64_t>(host_.shifted_rows.size()));
  for (const SlotRun& run : chunk.runs.first(static_cast<size_t>(rows.runs))) {
    const int32_t relative = run.position_shift - rows.own_shift;
    const auto shift = std::lower_bound(rows.shifts.begin(), rows.shifts.end(), relative);
    const auto index = static_cast<int32_t>(shift - rows.shifts.begin());
    host_.runs.push_back(
        {.begin = run.begin,
         .end = run.end,
         .tile_origin = run.tile_origin,
         .query_offset = relative == 0 ? 0 : first_query + index * rows.rows - begin_row});
  }
  if (chunk.runs.empty()) host_.runs.push_back({});
  for (const int32_t shift : rows.shifts) {
    for (int32_t i = 0; i < rows.rows; ++i) {
      host_.shifted_rows.push_back(begin_row + i);
      for (const int32_t component : PositionOf(chunk, rows.first_row + i)) {
        host_.shifted_positions.push_back(component - shift);
      }
    }
  }
  return {.first_run = first_run,
          .run_count = static_cast<int32_t>(host_.runs.size()) - first_run,
          .last_begin = chunk.runs.empty() ? 0 : chunk.runs.back().begin};
}

void StepBuffers::FillEmbeddings(const StepChunk& chunk) {
  if (limits_.max_embeddings == 0) return;
  auto row = static_cast<int32_t>(static_cast<int64_t>(host_.embeddings.size()) / hidden_size_);
  for (size_t i = 0; i < chunk.tokens.size(); ++i) {
    host_.embedding_rows.push_back(chunk.embeddings.empty() ? kFromTable : row++);
  }
  host_.embeddings.insert(host_.embeddings.end(), chunk.embeddings.begin(), chunk.embeddings.end());
}

void StepBuffers::FillPadding(int32_t rows, int32_t logit_rows) {
  const size_t filled = host_.token_ids.size();
  CHECK_LE(filled, static_cast<size_t>(rows));
  CHECK_LE(host_.logit_indices.size(), static_cast<size_t>(logit_rows));
  host_.token_ids.resize(rows, 0);
  host_.positions.resize(static_cast<size_t>(rows) * kPositionComponents, 0);
  const int64_t block_size = int64_t{1} << block_size_log2_;
  for (HostGroup& group : host_groups_) {
    // Each padding row gets a slot of its own, because two threads may store two of them at once.
    const int64_t scratch_slot = group.scratch.value() * block_size;
    for (int64_t row = static_cast<int64_t>(filled); row < rows; ++row) {
      const int64_t offset = row - static_cast<int64_t>(filled);
      group.slot_mapping.push_back(offset < block_size ? scratch_slot + offset : kNotStored);
    }
    group.row_runs.resize(rows);
    if (limits_.shares_prefixes) group.shared_segments.resize(rows, 0);
  }
  // Padding belongs to no sequence. It continues the last one and sees no slot.
  host_.sequence_of_token.resize(rows, filled == 0 ? 0 : host_.sequence_of_token.back());
  host_.logit_indices.resize(logit_rows, 0);
}

void StepBuffers::Upload(const StepInput& input, int32_t rows, int32_t logit_rows,
                         InputCopies& copies, int slot_index) {
  StagingSlot& slot = slots_[slot_index];
  slot.Clear();
  host_.token_ids.clear();
  host_.positions.clear();
  host_.sequence_of_token.clear();
  host_.runs.clear();
  host_.shifted_rows.clear();
  host_.shifted_positions.clear();
  host_.embedding_rows.clear();
  host_.embeddings.clear();
  host_.logit_indices.clear();
  host_.compared_slots.clear();
  for (HostGroup& group : host_groups_) {
    group.slot_mapping.clear();
    group.row_runs.clear();
    group.first_block.clear();
  }
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    FillChunk(input.chunks[i], static_cast<int32_t>(i));
  }
  for (size_t at = 0; limits_.shares_prefixes && at < groups.size(); ++at) {
    FillShared(input, static_cast<int32_t>(at));
  }
  FillPadding(rows, logit_rows);
  CopyInput(copies, token_ids, host_.token_ids, slot);
  CopyInput(copies, positions, host_.positions, slot);
  CopyInput(copies, sequence_of_token, host_.sequence_of_token, slot);
  CopyInput(copies, runs, host_.runs, slot);
  CopyInput(copies, shifted_rows, host_.shifted_rows, slot);
  CopyInput(copies, positions + first_shifted_query * kPositionComponents, host_.shifted_positions,
            slot);
  if (!host_.embeddings.empty()) {
    CopyInput(copies, embedding_rows, host_.embedding_rows, slot);
    CopyInput(copies, embeddings, host_.embeddings, slot);
  }
  CopyInput(copies, logit_indices, host_.logit_indices, slot);
  CopyInput(copies, compared_slots, host_.compared_slots, slot);
  for (size_t at = 0; at < groups.size(); ++at) {
    HostGroup& group = host_groups_[at];
    CopyInput(copies, groups[at].slot_mapping, group.slot_mapping, slot);
    CopyInput(copies, groups[at].row_runs, group.row_runs, slot);
    CopyInput(copies, groups[at].first_block, group.first_block, slot);
    CopyInput(copies, groups[at].shared_segments, group.shared_segments, slot);
    group.tables.Upload(copies, slot);
  }
}

}  // namespace baton
