// Device buffers for the inputs and results of a step. Their addresses stay fixed while the runner
// exists, so captured graphs stay valid. Everything that changes from step to step is in these
// buffers.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cache/kv_pool_layout.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/block_table_mirror.h"
#include "model/input_copies.h"
#include "model/model_runner.h"
#include "model/shift_groups.h"
#include "model/staging_slot.h"

namespace baton {

struct StepLimits {
  int32_t max_tokens = 512;  // rows of a step
  int32_t max_sequences = 64;
  int32_t max_logit_rows = 64;
  int32_t max_draws = 0;       // tokens drawn in a step; 0: one for each logit row
  int32_t max_context = 8192;  // slots of one sequence
  // Limits for inputs that ordinary steps do not need. A limit above 0 allocates the memory.
  int32_t max_parts = 0;            // sequences beyond max_sequences, in steps that are no decode
  int32_t max_extra_runs = 0;       // visible runs of a step beyond one per chunk
  int32_t max_shifted_queries = 0;  // pairs (token, position shift other than 0) of a step
  int32_t max_embeddings = 0;       // rows of a step with input embeddings
  int32_t max_compared_rows = 0;    // rows of a step that compare: 0, or max_tokens
  bool shares_prefixes = false;     // find the rows that share the beginning of their sequences
};

// Sizes of a decoder's activations, and its rotary frequencies.
struct DecoderConfig {
  int32_t hidden = 0;
  int32_t query_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t feed_forward = 0;
  int32_t vocabulary = 0;
  std::vector<double> rope_frequencies;  // [rotating pairs], radians per position
  // Tensor parallelism: the fields above are sizes of one rank, and these are sizes of the model.
  // 0: there is one rank.
  int32_t all_query_heads = 0;
  int32_t all_kv_heads = 0;
  int32_t all_feed_forward = 0;
};

class StepBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<StepBuffers>> Create(const DecoderConfig& config,
                                                             const KvPoolLayout& layout,
                                                             const StepLimits& limits,
                                                             Device& device);

  // Checks that a step's runs, positions and embeddings fit their chunks and these buffers. Does
  // not check what ModelRunner REQUIRES. InvalidArgument names the value and the limit.
  // Unimplemented: a segment, an adapter, or runs in a model with sliding windows.
  absl::Status Check(const StepInput& input) const;

  // Fills host slot `slot` for `input` and adds its copies to the device. Pads the input to `rows`
  // token rows and `logit_rows` logit rows. The device has one copy of the buffers, because
  // the stream orders their uses. A padding row sees no slot. It writes its KV to the scratch block
  // of each group, or nowhere once that block is full. The logits of padding rows are never read.
  // REQUIRES: Check(input) is OK; the step that last used `slot` is collected; the copies are
  // enqueued before the step's ops.
  void Upload(const StepInput& input, int32_t rows, int32_t logit_rows, InputCopies& copies,
              int slot = 0);

  // Inputs, on the device:
  int32_t* token_ids = nullptr;          // [tokens]
  int32_t* positions = nullptr;          // [query rows, kPositionComponents]
  int32_t* sequence_of_token = nullptr;  // [tokens]
  VisibleRun* runs = nullptr;            // [runs]
  int32_t* shifted_rows = nullptr;       // [shifted queries] the row that each one copies
  // Only for steps with embeddings; see EmbedTokensArgs.
  int32_t* embedding_rows = nullptr;  // [tokens]
  float* embeddings = nullptr;        // [embeddings, hidden]
  int32_t* logit_indices = nullptr;   // [logit rows]
  int64_t* compared_slots = nullptr;  // [tokens] only for steps that compare; see CompareKvArgs
  // Inputs of one KV group: where rows lie in its pool, and which slots they see in its layers.
  struct Group {
    int64_t* slot_mapping = nullptr;  // [tokens]
    RowRuns* row_runs = nullptr;      // [tokens]
    int32_t* block_tables = nullptr;  // [sequences, table_stride]
    int32_t* first_block = nullptr;   // [sequences]
    int32_t* shared_segments =
        nullptr;  // [tokens] (PagedAttentionArgs); null unless they are found
  };
  std::vector<Group> groups;
  // What the last Upload found for the rows of a KV group, on the host: [rows].
  std::span<const int32_t> shared_segments(int32_t group) const {
    return host_groups_[group].shared_segments;
  }
  std::span<const RowRuns> row_runs(int32_t group) const { return host_groups_[group].row_runs; }
  int64_t table_stride = 0;
  size_t input_bytes = 0;  // total of all inputs
  // Row of the first shifted query. The query rows before it are those of the tokens.
  int64_t first_shifted_query = 0;

  // Work space, on the device:
  double* rope_frequencies = nullptr;  // [half]
  float* cosines = nullptr;            // [query rows, half]
  float* sines = nullptr;              // [query rows, half]
  float* hidden = nullptr;             // [tokens, hidden]
  Activations normalized;              // [tokens, hidden]
  float* qkv = nullptr;                // [query rows, (query_heads + 2 kv_heads) * head_dim]
  Activations attention;               // [tokens, query_heads * head_dim]
  float* gate_up = nullptr;            // [tokens, 2 * feed_forward]
  Activations activated;               // [tokens, feed_forward]
  // The same of all ranks. With one rank, the same buffers.
  Activations all_attention;     // [tokens, all_query_heads * head_dim]
  Activations all_activated;     // [tokens, all_feed_forward]
  float* last_hidden = nullptr;  // [logit rows, hidden]
  Activations last_normalized;   // [logit rows, hidden]
  float* logits = nullptr;       // [logit rows, vocabulary]
  float* changes = nullptr;      // [tokens, kv_heads, 2] results of rows that compare
  float* all_changes = nullptr;  // the same of all ranks. With one rank, the same buffer

  // Counters of the block tables of all groups, since creation.
  int64_t uploaded_entries() const;
  int64_t table_uploads() const;

 private:
  StepBuffers() = default;

  struct HostInputs {
    std::vector<int32_t> token_ids;
    std::vector<int32_t> positions;
    std::vector<int32_t> sequence_of_token;
    std::vector<VisibleRun> runs;
    std::vector<int32_t> shifted_rows;
    std::vector<int32_t> shifted_positions;
    std::vector<int32_t> embedding_rows;
    std::vector<float> embeddings;
    std::vector<int32_t> logit_indices;
    std::vector<int64_t> compared_slots;  // empty: no row compares
  };
  // Host side of a Group, and its constants.
  struct HostGroup {
    int32_t window = 0;  // 0: full attention
    BlockId scratch;     // the last block of the group's pool
    BlockTableMirror tables;
    std::vector<int64_t> slot_mapping = {};
    std::vector<RowRuns> row_runs = {};
    std::vector<int32_t> first_block = {};
    std::vector<int32_t> shared_segments = {};
  };
  absl::Status CheckRuns(const StepChunk& chunk) const;
  static absl::Status CheckPlaces(const StepChunk& chunk);
  void FillChunk(const StepChunk& chunk, int32_t sequence);
  RowRuns FillRuns(const StepChunk& chunk, const ShiftGroup& rows, int32_t first_row);
  void FillGroup(const StepChunk& chunk, int32_t group, RowRuns runs);
  void FillShared(const StepInput& input, int32_t group);
  void FillPlaces(const StepChunk& chunk, const ShiftGroup& rows, RowRuns runs);
  int64_t SlotInPool(std::span<const BlockId> table, int32_t slot) const;
  void FillTable(const StepChunk& chunk, int32_t sequence, int32_t group);
  void FillEmbeddings(const StepChunk& chunk);
  void FillPadding(int32_t rows, int32_t logit_rows);

  std::unique_ptr<DeviceBuffer> memory_;
  std::unique_ptr<DeviceBuffer> staging_;
  std::array<StagingSlot, kStepSlots> slots_;
  HostInputs host_;
  std::vector<HostGroup> host_groups_;
  StepLimits limits_;
  int64_t hidden_size_ = 0;
  int32_t block_size_log2_ = 0;
};

}  // namespace baton
