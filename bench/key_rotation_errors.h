// Three ways to reuse cached keys at another position (key_rotation_times.h), compared by the error
// of the logits.
//
// The reference computes every chunk at its final position and keeps K and V in f32. The other ways
// store f16, as the engine does by default:
//
//   final      keys computed at their final position
//   query      keys computed where the engine computes them; queries rotated by the difference
//   copy       the same keys, rotated by the difference and rounded again
//   unrotated  keys stored without rotation, rotated for their final position when they are read
//
// With scope `alone`, only rounding makes a way differ from the reference. With scope `system`, the
// frame does too: a chunk sees the system part from the position where it is computed, which is
// nearer than its final position.
//
// The pool holds f32. A way's keys and values are written into it with the roundings of that way,
// so all ways read them with the same attention.
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/chunk_prompts.h"
#include "bench/chunk_scores.h"
#include "bench/figure_list.h"
#include "common/status_macros.h"
#include "engine/model_loader.h"
#include "kernels/half.h"
#include "model/architecture.h"
#include "model/llama/llama_config.h"

namespace baton {

class KeyRotationErrors {
 public:
  // `model` and `config` must outlive this; the device's memory is the host's.
  static absl::StatusOr<std::unique_ptr<KeyRotationErrors>> Create(const LoadedModel& model,
                                                                   const LlamaConfig& config,
                                                                   ChunkPrompts& prompts,
                                                                   ChunkScope scope) {
    std::unique_ptr<KeyRotationErrors> errors(new KeyRotationErrors(model, config, prompts, scope));
    RETURN_IF_ERROR(errors->Prepare());
    return errors;
  }

  absl::Status Measure(FigureList& figures) {
    RETURN_IF_ERROR(ComputeParts());
    const std::vector<std::byte> computed(pool_->data(), pool_->data() + pool_->size());
    ASSIGN_OR_RETURN(const std::vector<Row> reference, Question(/*final_places=*/true));
    std::printf("\nscope %s\n%-18s %14s %14s %14s %12s\n", alone() ? "alone" : "system", "way",
                "mean |error|", "largest", "KL nats", "other token");
    const auto compare = [&](const std::string& way, bool final_places,
                             const std::function<void()>& change) -> absl::Status {
      std::memcpy(pool_->data(), computed.data(), computed.size());
      change();
      ASSIGN_OR_RETURN(const std::vector<Row> rows, Question(final_places));
      Compare(absl::StrCat(way, alone() ? "_alone" : "_system"), reference, rows, figures);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(compare("query_f32", false, [] {}));
    RETURN_IF_ERROR(compare("final", true, [&] { RoundAll(kFinalPlace); }));
    RETURN_IF_ERROR(compare("query", false, [&] { RoundAll(kStoredPlace); }));
    RETURN_IF_ERROR(compare("copy", true, [&] { Move(/*unrotated=*/false); }));
    return compare("unrotated", true, [&] { Move(/*unrotated=*/true); });
  }

 private:
  using Row = std::vector<float>;
  static constexpr int32_t kBlockSize = 16;
  static constexpr int32_t kStoredPlace = 0;  // chunks computed behind the system part
  static constexpr int32_t kFinalPlace = 1;   // the same, computed at their final position

  KeyRotationErrors(const LoadedModel& model, const LlamaConfig& config, ChunkPrompts& prompts,
                    ChunkScope scope)
      : model_(model),
        config_(config),
        shape_(prompts.shape()),
        prompt_(prompts.Chunked({.positions = ChunkPositions::kSequential, .scope = scope})) {}

  // Slots: system part, chunks at their stored place, chunks at their final place, question.
  int32_t SlotOf(int32_t place, int32_t chunk) const {
    return shape_.system_tokens + (place * shape_.chunks + chunk) * shape_.chunk_tokens;
  }
  int32_t QuestionSlot() const { return SlotOf(2, 0); }
  bool alone() const { return prompt_.options.scope == ChunkScope::kAlone; }
  // Position at which the engine computes a chunk, and how far its final position is from there.
  int32_t StoredPosition() const { return alone() ? 0 : shape_.system_tokens; }
  int32_t Shift(int32_t chunk) const {
    return shape_.system_tokens + chunk * shape_.chunk_tokens - StoredPosition();
  }

  absl::Status Prepare() {
    const int32_t slots = QuestionSlot() + shape_.question_tokens;
    const int32_t blocks = (slots + kBlockSize - 1) / kBlockSize;
    KvGroupSpec group = model_.info.spec.kv.groups.front();
    group.type = KvType::kF32;
    ASSIGN_OR_RETURN(layout_, KvLayout::Create(group, KvLayoutKind::kBlockMajor, kBlockSize,
                                               int64_t{blocks} + 1));
    ASSIGN_OR_RETURN(pool_, model_.device->Allocate(layout_.pool_bytes(), "KV pool"));
    ModelRunnerOptions options;
    options.limits = {.max_tokens = std::max(shape_.chunk_tokens, shape_.question_tokens),
                      .max_sequences = 1,
                      .max_logit_rows = shape_.question_tokens,
                      .max_context = blocks * kBlockSize,
                      .max_extra_runs = shape_.chunks + 2,
                      .max_shifted_queries = shape_.chunks * shape_.question_tokens};
    ASSIGN_OR_RETURN(runner_, model_.weights->CreateRunner(layout_, pool_->data(), options));
    for (int32_t i = 0; i < blocks; ++i) table_.push_back(BlockId(i));
    return absl::OkStatus();
  }

  absl::Status Compute(std::span<const TokenId> tokens, int32_t slot, int32_t position,
                       std::vector<SlotRun> runs, int32_t logit_rows, std::vector<Row>* rows) {
    const auto count = static_cast<int32_t>(tokens.size());
    runs.push_back({.begin = slot, .end = slot + count, .tile_origin = slot});
    StepInput input;
    StepChunk& chunk = input.chunks.emplace_back();
    chunk.tokens = tokens;
    chunk.begin_slot = slot;
    chunk.begin_position = position;
    chunk.block_table = table_;
    chunk.logit_rows = logit_rows;
    chunk.keeps_logits = logit_rows > 0;
    chunk.runs = runs;
    ASSIGN_OR_RETURN(const StepId step, RunStep(*runner_, input));
    for (int32_t i = 0; i < logit_rows; ++i) {
      const std::span<const float> row = runner_->Logits(step, i);
      rows->emplace_back(row.begin(), row.end());
    }
    return absl::OkStatus();
  }

  absl::Status ComputeParts() {
    const int32_t system = shape_.system_tokens;
    RETURN_IF_ERROR(Compute(prompt_.system, 0, 0, {}, 0, nullptr));
    for (const int32_t place : {kStoredPlace, kFinalPlace}) {
      for (int32_t i = 0; i < shape_.chunks; ++i) {
        const int32_t position = StoredPosition() + (place == kFinalPlace ? Shift(i) : 0);
        std::vector<SlotRun> sees;
        if (!alone()) sees.push_back({.begin = 0, .end = system});
        RETURN_IF_ERROR(Compute(prompt_.chunks[static_cast<size_t>(i)], SlotOf(place, i), position,
                                std::move(sees), 0, nullptr));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Row>> Question(bool final_places) {
    std::vector<SlotRun> runs = {{.begin = 0, .end = shape_.system_tokens}};
    for (int32_t i = 0; i < shape_.chunks; ++i) {
      const int32_t begin = SlotOf(final_places ? kFinalPlace : kStoredPlace, i);
      runs.push_back({.begin = begin,
                      .end = begin + shape_.chunk_tokens,
                      .tile_origin = begin,
                      .position_shift = final_places ? 0 : Shift(i)});
    }
    std::vector<Row> rows;
    RETURN_IF_ERROR(Compute(prompt_.question, QuestionSlot(), shape_.prefix_tokens(), runs,
                            shape_.question_tokens, &rows));
    return rows;
  }

  // Address of the values of one token in one layer. `plane`: 0 for K, 1 for V.
  float* RowOf(int32_t layer, int32_t plane, int32_t slot) const {
    const int64_t offset = layout_.PieceOffset(layer, plane, slot / kBlockSize);
    return reinterpret_cast<float*>(pool_->data() + offset) +
           (slot % kBlockSize) * layout_.token_stride(plane);
  }
  int64_t RowValues() const { return int64_t{config_.kv_heads} * config_.head_dim; }
  static float Rounded(double value) { return F16ToF32(F32ToF16(static_cast<float>(value))); }

  template <typename Function>
  void ForEachChunkRow(const Function& act) const {
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      for (int32_t chunk = 0; chunk < shape_.chunks; ++chunk) {
        for (int32_t i = 0; i < shape_.chunk_tokens; ++i) act(layer, chunk, i);
      }
    }
  }

  void RoundAll(int32_t place) {
    ForEachChunkRow([&](int32_t layer, int32_t chunk, int32_t i) {
      for (const int32_t plane : {0, 1}) {
        float* const row = RowOf(layer, plane, SlotOf(place, chunk) + i);
        for (int64_t d = 0; d < RowValues(); ++d) row[d] = Rounded(row[d]);
      }
    });
  }

  // Rotates the keys of a row by a number of positions.
  void Rotate(std::vector<double>& keys, int32_t positions) const {
    const auto half = static_cast<int64_t>(config_.rope_frequencies.size());
    for (int64_t head = 0; head < config_.kv_heads; ++head) {
      for (int64_t pair = 0; pair < half; ++pair) {
        const double angle = positions * config_.rope_frequencies[static_cast<size_t>(pair)];
        double& a = keys[static_cast<size_t>(head * config_.head_dim + 2 * pair)];
        double& b = keys[static_cast<size_t>(head * config_.head_dim + 2 * pair + 1)];
        const std::pair<double, double> turned = {a * std::cos(angle) - b * std::sin(angle),
                                                  a * std::sin(angle) + b * std::cos(angle)};
        std::tie(a, b) = turned;
      }
    }
  }

  // Fills the final places from the stored ones.
  void Move(bool unrotated) {
    std::vector<double> keys(static_cast<size_t>(RowValues()));
    ForEachChunkRow([&](int32_t layer, int32_t chunk, int32_t i) {
      const int32_t from = SlotOf(kStoredPlace, chunk) + i;
      const int32_t to = SlotOf(kFinalPlace, chunk) + i;
      const float* const stored = RowOf(layer, 0, from);
      const int32_t position = StoredPosition() + i;
      keys.assign(stored, stored + RowValues());
      if (unrotated) Rotate(keys, -position);
      for (double& key : keys) key = Rounded(key);
      Rotate(keys, Shift(chunk) + (unrotated ? position : 0));
      for (int64_t d = 0; d < RowValues(); ++d) {
        const double key = keys[static_cast<size_t>(d)];
        RowOf(layer, 0, to)[d] = unrotated ? static_cast<float>(key) : Rounded(key);
        RowOf(layer, 1, to)[d] = Rounded(RowOf(layer, 1, from)[d]);
      }
    });
  }

  static void Compare(const std::string& way, const std::vector<Row>& reference,
                      const std::vector<Row>& rows, FigureList& figures) {
    double sum = 0;
    double largest = 0;
    double divergence = 0;
    int other = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& expected = reference[i];
      const Row& row = rows[i];
      for (size_t token = 0; token < row.size(); ++token) {
        const double error = std::abs(double{row[token]} - expected[token]);
        sum += error / static_cast<double>(row.size() * rows.size());
        largest = std::max(largest, error);
      }
      divergence +=
          LogitRow(expected).DivergenceOf(LogitRow(row)) / static_cast<double>(rows.size());
      const auto best = [](const Row& of) {
        return std::max_element(of.begin(), of.end()) - of.begin();
      };
      other += best(expected) == best(row) ? 0 : 1;
    }
    std::printf("%-18s %14.6f %14.6f %14.3e %5d of %zu\n", way.c_str(), sum, largest, divergence,
                other, rows.size());
    figures.Add(absl::StrCat("logit_error_mean_", way), sum, "logits");
    figures.Add(absl::StrCat("logit_error_largest_", way), largest, "logits");
    figures.Add(absl::StrCat("kl_", way), divergence, "nats");
  }

  const LoadedModel& model_;
  const LlamaConfig& config_;
  const ChunkShape shape_;
  const ChunkedPrompt prompt_;
  KvLayout layout_;
  std::unique_ptr<DeviceBuffer> pool_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> table_;
};

}  // namespace baton
