// Asynchronous runner over an inline one. Its steps run late, when the test asks for it.
//
// A submitted step waits. Run computes the oldest waiting step, with the tokens that the previous
// step drew. Then Poll reports its layers one by one, and FinishOne ends it. A step reads and
// writes its blocks as late as possible. If a block was freed too early, it already has a new user
// by then. Copies run in order with the steps.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "model/model_runner.h"

namespace baton {

class DeferredRunner final : public ModelRunner {
 public:
  // `device` must be inline and must outlive this object.
  explicit DeferredRunner(ModelRunner* device) : device_(device) {}

  int32_t max_in_flight() const override { return 2; }
  absl::StatusOr<StepId> Submit(const StepInput& input) override {
    CHECK_LT(static_cast<int32_t>(steps_.size()), max_in_flight());
    steps_.push_back(std::make_unique<Step>(Own(input)));
    steps_.back()->id = StepId(++last_id_);
    steps_.back()->copies_before = std::exchange(copies_, {});
    return steps_.back()->id;
  }
  absl::StatusOr<StepResult> Collect(StepId id) override {
    CHECK(!steps_.empty() && steps_.front()->id == id) << "step " << id << " is not the oldest";
    if (steps_.front()->state == State::kWaits) Run();
    steps_.front()->state = State::kFinished;
    Poll();
    collected_ = std::move(steps_.front());
    steps_.pop_front();
    return std::move(*collected_->result);
  }
  bool Done(StepId id) const override {
    for (const auto& step : steps_) {
      if (step->id == id) return step->state == State::kFinished;
    }
    LOG(FATAL) << "step " << id << " is not in flight";
    return false;
  }
  // Reports one layer per Poll; all remaining layers once the step is finished.
  void Poll() override {
    if (steps_.empty() || steps_.front()->state == State::kWaits) return;
    Step& step = *steps_.front();
    while (!step.layers.empty()) {
      const auto [layers, chunks] = step.layers.front();
      step.layers.pop_front();
      step.kv_written(layers, chunks);
      if (step.state != State::kFinished) return;
    }
  }
  void set_waker(std::function<void()> waker) override { waker_ = std::move(waker); }
  bool compares_rows() const override { return device_->compares_rows(); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    if (!steps_.empty()) return absl::OkStatus();
    return device_->CopyBlocks(std::exchange(copies_, {}));
  }
  std::span<const float> Logits(StepId id, int32_t row) const override {
    CHECK(collected_ != nullptr && collected_->id == id) << "step " << id << " has no logits";
    const std::vector<float>& kept = collected_->logits.at(static_cast<size_t>(row));
    CHECK(!kept.empty()) << "row " << row << " was not kept";
    return kept;
  }

  // Returns true if some step is not finished.
  bool unfinished() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const auto& step) { return step->state != State::kFinished; });
  }
  // Computes the oldest waiting step, if any. From now on Poll reports its layers.
  void Run() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i]->state != State::kWaits) continue;
      RunStep(*steps_[i], i == 0 ? nullptr : steps_[i - 1].get());
      return Wake();
    }
  }
  // Computes and finishes the oldest unfinished step.
  void FinishOne() {
    for (const auto& step : steps_) {
      if (step->state == State::kFinished) continue;
      if (step->state == State::kWaits) Run();
      step->state = State::kFinished;
      return Wake();
    }
  }

 private:
  enum class State { kWaits, kRan, kFinished };
  struct Chunk {
    std::vector<TokenId> tokens;
    std::vector<BlockId> table;
    std::array<std::vector<BlockId>, kMaxKvGroups - 1> window_tables;
    std::vector<SlotRun> runs;
    std::vector<RowPlace> places;
    std::vector<RowPosition> positions;
    std::vector<TokenDraw> draws;
    std::vector<std::vector<LogitAddition>> additions;  // of each draw
  };
  struct Step {
    StepId id;
    State state = State::kWaits;
    StepInput input;  // its spans lie in `owned`
    std::vector<Chunk> owned;
    std::vector<BlockCopy> copies_before;
    std::function<void(int32_t, int32_t)> kv_written;
    std::deque<std::pair<int32_t, int32_t>> layers;  // still to report: layers, chunks
    std::optional<absl::StatusOr<StepResult>> result;
    std::vector<TokenId> drawn;  // 0 if no token was drawn
    std::vector<std::vector<float>> logits;
  };

  // Copies everything that the caller's spans point to.
  static Step Own(const StepInput& input) {
    Step step;
    step.input = input;
    step.owned.resize(input.chunks.size());
    for (size_t i = 0; i < input.chunks.size(); ++i) {
      StepChunk& chunk = step.input.chunks[i];
      Chunk& owned = step.owned[i];
      owned.tokens.assign(chunk.tokens.begin(), chunk.tokens.end());
      owned.table.assign(chunk.block_table.begin(), chunk.block_table.end());
      owned.draws.assign(chunk.draws.begin(), chunk.draws.end());
      for (TokenDraw& draw : owned.draws) {
        owned.additions.emplace_back(draw.additions.begin(), draw.additions.end());
        draw.additions = owned.additions.back();
      }
      chunk.tokens = owned.tokens;
      chunk.block_table = owned.table;
      owned.runs.assign(chunk.runs.begin(), chunk.runs.end());
      chunk.runs = owned.runs;
      owned.places.assign(chunk.places.begin(), chunk.places.end());
      chunk.places = owned.places;
      owned.positions.assign(chunk.positions.begin(), chunk.positions.end());
      chunk.positions = owned.positions;
      for (size_t window = 0; window < chunk.window_tables.size(); ++window) {
        std::span<const BlockId>& table = chunk.window_tables[window];
        owned.window_tables[window].assign(table.begin(), table.end());
        table = owned.window_tables[window];
      }
      chunk.draws = owned.draws;
    }
    step.kv_written = std::exchange(step.input.kv_written, nullptr);
    return step;
  }

  void RunStep(Step& step, const Step* before) {
    if (!step.copies_before.empty()) CHECK(device_->CopyBlocks(step.copies_before).ok());
    size_t draws = 0;
    for (size_t i = 0; i < step.input.chunks.size(); ++i) {
      StepChunk& chunk = step.input.chunks[i];
      draws += chunk.draws.size();
      if (!chunk.token_from) continue;
      CHECK_EQ(chunk.tokens.size(), 1u);
      step.owned[i].tokens[0] = DrawnIn(before, *chunk.token_from);
      chunk.token_from.reset();
    }
    if (step.kv_written) {
      step.input.kv_written = [&step](int32_t layers, int32_t chunks) {
        step.layers.emplace_back(layers, chunks);
      };
    }
    const absl::StatusOr<StepId> id = device_->Submit(step.input);
    if (id.ok()) {
      step.result = device_->Collect(*id);
    } else {
      step.result = id.status();
    }
    step.state = State::kRan;
    step.drawn.assign(draws, 0);
    if (!step.result->ok()) return;
    for (size_t i = 0; i < draws; ++i) {
      const absl::StatusOr<TokenId>& drawn = (*step.result)->drawn[i];
      if (drawn.ok()) step.drawn[i] = *drawn;
    }
    KeepLogits(step, *id);
  }
  TokenId DrawnIn(const Step* before, const DrawnBy& from) const {
    if (before == nullptr) before = collected_.get();  // the previous step was already collected
    CHECK(before != nullptr && before->id == from.step) << "no step " << from.step << " before";
    return before->drawn.at(static_cast<size_t>(from.draw));
  }
  void KeepLogits(Step& step, StepId id) {
    const StepInput& input = step.input;
    const auto wanted = input.wanted ? static_cast<size_t>(input.wanted()) : input.chunks.size();
    int32_t row = 0;
    for (size_t c = 0; c < wanted; ++c) {
      for (int32_t i = 0; i < input.chunks[c].logit_rows; ++i, ++row) {
        std::vector<float>& kept = step.logits.emplace_back();
        if (!input.chunks[c].keeps_logits) continue;
        const std::span<const float> logits = device_->Logits(id, row);
        kept.assign(logits.begin(), logits.end());
      }
    }
  }
  void Wake() {
    if (waker_) waker_();
  }

  ModelRunner* const device_;
  std::deque<std::unique_ptr<Step>> steps_;  // not collected yet, oldest first
  std::unique_ptr<Step> collected_;          // the step collected last
  std::vector<BlockCopy> copies_;            // run after the last submitted step
  std::function<void()> waker_;
  int64_t last_id_ = 0;
};

}  // namespace baton
