// Measures the profile of an engine (loadtest/engine_profile.h): the times of single steps on a
// real model. Each time is that of the fastest of several runs, because other processes can
// only make a run slower.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/bench_model.h"
#include "bench/run_times.h"
#include "loadtest/engine_profile.h"
#include "loadtest/step_times.h"

namespace baton {

class ProfileTimes {
 public:
  ProfileTimes(const LoadedModel& model, const EngineOptions& options)
      : model_(model), options_(options), context_(model.info.spec.context_length) {}

  EngineProfile Measure(bool quick) {
    EngineProfile profile;
    const ModelSpec& spec = model_.info.spec;
    profile.model = spec.name.empty() ? spec.architecture : spec.name;
    profile.device = model_.device->Description() + ", " + model_.instruction_set + ", " +
                     std::to_string(model_.threads) + " threads";
    profile.kv_bytes_per_token =
        KvLayout::Create(model_.info.spec.KvOfType(options_.kv_type).groups.front(),
                         KvLayoutKind::kBlockMajor, 1, 1)
            ->bytes_per_block();
    profile.max_context = context_;
    const int64_t most_begin = context_ - kStepTokens;
    profile.prefill.rows = UpTo(most_begin, {0, 512, 2048, 6144}, quick ? 2 : 4);
    profile.prefill.columns = {16, 64, 256, kStepTokens};
    for (const int64_t begin : profile.prefill.rows) MeasurePrefill(begin, profile.prefill);
    profile.decode.rows = quick ? std::vector<int64_t>{1, 8} : std::vector<int64_t>{1, 4, 16, 32};
    profile.decode.columns = UpTo(context_ - 1, {64, 512, 1024}, quick ? 2 : 3);
    for (const int64_t sequences : profile.decode.rows) MeasureDecode(sequences, profile.decode);
    return profile;
  }

  // The time that the profile predicts for a step that mixes decoding with a prompt, as a multiple
  // of the measured time.
  double MixedRatio(const EngineProfile& profile) {
    constexpr int32_t kSequences = 8, kContext = 512, kPrompt = 256;
    BenchModel bench(model_, options_, kSequences + 1, kContext + 1);
    for (int32_t s = 0; s < kSequences; ++s) bench.Prefill(s, 0, kContext);
    const double us =
        1e6 * BestSeconds([&] { bench.Mixed(kSequences, kContext, kPrompt); }, kLeastSeconds);
    const PrefillPiece piece{.begin = 0, .tokens = kPrompt};
    const auto predicted = static_cast<double>(
        StepTimes(profile).StepUs(kSequences, int64_t{kSequences} * kContext, {&piece, 1}));
    return predicted / us;
  }

 private:
  static constexpr int32_t kStepTokens = 512;
  static constexpr double kLeastSeconds = 0.3;

  // The values up to `most`, at most `count`.
  static std::vector<int64_t> UpTo(int64_t most, std::vector<int64_t> values, size_t count) {
    std::erase_if(values, [most](int64_t value) { return value > most; });
    values.resize(std::min(values.size(), count));
    return values;
  }

  void MeasurePrefill(int64_t begin, TimeGrid& grid) {
    const auto first = static_cast<int32_t>(begin);
    BenchModel bench(model_, options_, 1, first + kStepTokens);
    bench.Prefill(0, 0, first);
    std::vector<double>& times = grid.us.emplace_back();
    for (const int64_t tokens : grid.columns) {
      const auto end = first + static_cast<int32_t>(tokens);
      times.push_back(1e6 * BestSeconds([&] { bench.Prefill(0, first, end); }, kLeastSeconds));
      std::printf("prefill %6d + %4d tokens: %10.1f us\n", first, end - first, times.back());
      std::fflush(stdout);
    }
  }

  void MeasureDecode(int64_t sequences, TimeGrid& grid) {
    const auto count = static_cast<int32_t>(sequences);
    const auto longest = static_cast<int32_t>(grid.columns.back());
    BenchModel bench(model_, options_, count, longest + 1);
    for (int32_t s = 0; s < count; ++s) bench.Prefill(s, 0, longest);
    std::vector<double>& times = grid.us.emplace_back();
    for (const int64_t context : grid.columns) {
      const auto slot = static_cast<int32_t>(context);
      times.push_back(1e6 * BestSeconds([&] { bench.Decode(count, slot); }, kLeastSeconds));
      std::printf("decode %3d sequences behind %4d tokens: %10.1f us\n", count, slot, times.back());
      std::fflush(stdout);
    }
  }

  const LoadedModel& model_;
  const EngineOptions options_;
  const int32_t context_;
};

}  // namespace baton
