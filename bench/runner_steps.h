// Fixed costs of a decode step in the real runner, with a model that is so small that the device
// has almost nothing to compute: the host's calls, the launch of the graph, the copies and the
// waits.
//
//   runner.submit       µs that Submit takes on the host
//   runner.step         µs from step to step, with two steps in flight as in the engine. Each step
//                       takes the token that the last one drew
//   runner.step_alone   µs from Submit to the end of Collect, with one step in flight
//   runner.graphs       graphs of decode steps that ran, for each step
//
// Thread safety: belongs to one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/figure_list.h"
#include "bench/median_interval.h"
#include "common/check.h"
#include "engine/engine_options.h"
#include "engine/model_loader.h"
#include "model/architecture.h"

namespace baton {

class RunnerSteps {
 public:
  // One sequence of kContext slots. REQUIRES: a model with one KV group.
  explicit RunnerSteps(const LoadedModel& model) {
    const ModelSpec& spec = model.info.spec;
    CHECK_EQ(spec.kv.groups.size(), 1u) << "models with sliding windows are not supported";
    constexpr int32_t kBlocks = kContext / kBlockSize;
    auto layout = KvLayout::Create(spec.KvOfType(KvType::kF16).groups.front(),
                                   KvLayoutKind::kBlockMajor, kBlockSize, kBlocks + 1);
    CHECK(layout.ok()) << layout.status();
    auto pool = model.device->Allocate(layout->pool_bytes(), "KV pool");
    CHECK(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
    ModelRunnerOptions options;
    options.limits = {
        .max_tokens = 8, .max_sequences = 8, .max_logit_rows = 8, .max_context = kContext};
    auto runner = model.weights->CreateRunner(*layout, pool_->data(), options);
    CHECK(runner.ok()) << runner.status();
    runner_ = std::move(*runner);
    for (int32_t block = 0; block < kBlocks; ++block) table_.push_back(BlockId(block));
  }

  void Measure(int steps, FigureList& figures) {
    Run(steps, 2);  // warm
    const int64_t before = runner_->counters().graph_replays;
    const Times ahead = Run(steps, runner_->max_in_flight());
    const auto graphs = static_cast<double>(runner_->counters().graph_replays - before);
    const Times alone = Run(steps, 1);
    Report(figures, "runner.submit", ahead.submit_us, "us");
    Report(figures, "runner.step", ahead.step_us, "us");
    Report(figures, "runner.step_alone", alone.step_us, "us");
    Report(figures, "runner.graphs", graphs / steps, "a step", 1);
  }

 private:
  static constexpr int32_t kBlockSize = 64, kContext = 1024;
  using Clock = std::chrono::steady_clock;
  struct Times {
    double submit_us, step_us;  // medians
  };

  static double MicrosecondsSince(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  static void Report(FigureList& figures, const char* name, double value, const char* unit,
                     std::optional<double> limit = std::nullopt) {
    std::printf("%-44s %12.2f %-9s %12.2f %7.3f\n", name, value, unit, limit.value_or(0),
                limit ? value / *limit : 0);
    figures.Add(name, value, unit, limit);
  }

  Times Run(int steps, int in_flight) {
    std::vector<double> submits, between;
    std::vector<StepId> uncollected;
    const TokenId token = 11;
    TokenDraw draw;
    draw.temperature = 0;
    Clock::time_point ended = Clock::now();
    const auto collect = [&] {
      const auto result = runner_->Collect(uncollected.front());
      CHECK(result.ok()) << result.status();
      uncollected.erase(uncollected.begin());
      between.push_back(MicrosecondsSince(ended));
      ended = Clock::now();
    };
    for (int i = 0; i < steps; ++i) {
      StepInput input;
      input.chunks.push_back({.tokens = {&token, 1},
                              .begin_slot = i % kContext,
                              .begin_position = i % kContext,
                              .block_table = table_,
                              .logit_rows = 1,
                              .draws = {&draw, 1}});
      if (!uncollected.empty()) input.chunks[0].token_from = {.step = uncollected.back()};
      const Clock::time_point start = Clock::now();
      const auto id = runner_->Submit(input);
      CHECK(id.ok()) << id.status();
      submits.push_back(MicrosecondsSince(start));
      uncollected.push_back(*id);
      if (static_cast<int>(uncollected.size()) >= in_flight) collect();
    }
    while (!uncollected.empty()) collect();
    return {MedianOf(submits).median, MedianOf(between).median};
  }

  std::unique_ptr<DeviceBuffer> pool_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> table_;
};

}  // namespace baton
