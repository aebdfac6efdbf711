// Reads rows of logits out of an engine while it serves requests as always. The engine computes
// logits of a prompt's last token only. The tap asks its model runner for those of more tokens.
//
// It is an architecture (EngineOptions::architectures) around the real one. Its runner passes every
// step on, with more logit rows for the tokens at the wanted positions, and keeps those rows. The
// engine sees its own rows only. No bit changes, because a row does not depend on the others.
//
// With one request at a time, wanted positions behind all parts of the prompt are positions of its
// question and answer.
//
// Thread safety: Want and rows() belong to the thread that asks the engine, while no request runs.
// The runner belongs to the engine's thread.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "model/architecture.h"
#include "model/architectures.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

class LogitTap {
 public:
  static constexpr int32_t kMostRows = 64;  // wanted in one request

  // From now on, keeps the logits of the tokens at positions [begin, end), and forgets the rest.
  // REQUIRES: end - begin <= kMostRows.
  void Want(int32_t begin, int32_t end) {
    begin_ = begin;
    end_ = end;
    rows_.clear();
  }
  // Rows by position. A row is missing if its token was found in the cache.
  const std::map<int32_t, std::vector<float>>& rows() const { return rows_; }

 private:
  friend class TappedRunner;
  int32_t begin_ = 0;
  int32_t end_ = 0;
  std::map<int32_t, std::vector<float>> rows_;
};

class TappedRunner final : public ModelRunner {
 public:
  TappedRunner(std::unique_ptr<ModelRunner> runner, LogitTap* tap)
      : runner_(std::move(runner)), tap_(tap) {}

  int32_t max_in_flight() const override { return 1; }

  absl::StatusOr<StepId> Submit(const StepInput& input) override {
    StepInput wider = input;
    wanted_.clear();
    engine_rows_.clear();
    draws_.clear();
    int32_t row = 0;
    for (StepChunk& chunk : wider.chunks) {
      const int32_t engines = chunk.logit_rows;
      const auto tokens = static_cast<int32_t>(chunk.tokens.size());
      const int32_t end = chunk.begin_position + tokens;
      // Rows with places compute slots of prompt chunks again. They are not of the question.
      if (chunk.places.empty() && end > tap_->begin_ && chunk.begin_position < tap_->end_) {
        const int32_t first = std::max(chunk.begin_position, tap_->begin_);
        chunk.logit_rows = std::max(engines, end - first);
        chunk.keeps_logits = true;
        for (int32_t at = first; at < std::min(end, tap_->end_); ++at) {
          wanted_.emplace_back(at, row + chunk.logit_rows - (end - at));
        }
        std::vector<TokenDraw>& draws = draws_.emplace_back(chunk.draws.begin(), chunk.draws.end());
        for (TokenDraw& draw : draws) draw.row += chunk.logit_rows - engines;
        chunk.draws = draws;
      }
      for (int32_t i = 0; i < engines; ++i) {
        engine_rows_.push_back(row + chunk.logit_rows - engines + i);
      }
      row += chunk.logit_rows;
    }
    return runner_->Submit(wider);
  }

  absl::StatusOr<StepResult> Collect(StepId step) override {
    ASSIGN_OR_RETURN(StepResult result, runner_->Collect(step));
    for (const auto& [position, row] : wanted_) {
      const std::span<const float> logits = runner_->Logits(step, row);
      tap_->rows_[position] = {logits.begin(), logits.end()};
    }
    return result;
  }
  std::span<const float> Logits(StepId step, int32_t row) const override {
    return runner_->Logits(step, engine_rows_[static_cast<size_t>(row)]);
  }

  bool Done(StepId step) const override { return runner_->Done(step); }
  bool compares_rows() const override { return runner_->compares_rows(); }
  void Poll() override { runner_->Poll(); }
  void set_waker(std::function<void()> waker) override { runner_->set_waker(std::move(waker)); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    return runner_->CopyBlocks(copies);
  }
  RunnerCounters counters() const override { return runner_->counters(); }
  absl::Status Health() const override { return runner_->Health(); }

 private:
  const std::unique_ptr<ModelRunner> runner_;
  LogitTap* const tap_;
  // Of the step in flight.
  std::vector<std::pair<int32_t, int32_t>> wanted_;  // position, row of the wider step
  std::vector<int32_t> engine_rows_;                 // the wider step's row of each engine's row
  std::deque<std::vector<TokenDraw>> draws_;
};

class TappedWeights final : public ModelWeights {
 public:
  TappedWeights(std::unique_ptr<ModelWeights> weights, LogitTap* tap)
      : weights_(std::move(weights)), tap_(tap) {}

  size_t bytes() const override { return weights_->bytes(); }
  ModelCost cost() const override { return weights_->cost(); }
  absl::StatusOr<std::unique_ptr<ModelRunner>> CreateRunner(
      const KvPoolLayout& layout, const PoolAddresses& pools,
      const ModelRunnerOptions& options) const override {
    ModelRunnerOptions more = options;
    more.limits.max_logit_rows += LogitTap::kMostRows;
    ASSIGN_OR_RETURN(auto runner, weights_->CreateRunner(layout, pools, more));
    return std::make_unique<TappedRunner>(std::move(runner), tap_);
  }

 private:
  const std::unique_ptr<ModelWeights> weights_;
  LogitTap* const tap_;
};

// An architecture whose runners have the tap. Both pointers must outlive it and its weights.
class TappedArchitecture final : public Architecture {
 public:
  TappedArchitecture(const Architecture* real, LogitTap* tap) : real_(real), tap_(tap) {}

  std::string_view name() const override { return real_->name(); }
  absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const override {
    return real_->ReadSpec(file);
  }
  absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& file,
                                                     Device& device) const override {
    ASSIGN_OR_RETURN(auto weights, real_->Load(file, device));
    return std::make_unique<TappedWeights>(std::move(weights), tap_);
  }

 private:
  const Architecture* const real_;
  LogitTap* const tap_;
};

// All architectures of this build, with a tap.
class TappedArchitectures {
 public:
  explicit TappedArchitectures(LogitTap* tap) {
    for (const Architecture* const real : Architectures()) {
      list_.push_back(owned_.emplace_back(std::make_unique<TappedArchitecture>(real, tap)).get());
    }
  }
  ArchitectureList list() const { return list_; }

 private:
  std::vector<std::unique_ptr<TappedArchitecture>> owned_;
  std::vector<const Architecture*> list_;
};

}  // namespace baton
